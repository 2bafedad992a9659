# Sourced by the scripts beside it: makes a virtual environment with the project and some extras in it.
#
# FRAMEWORK_PYTHON chooses the interpreter, FRAMEWORK_VENV the folder of the environment.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_python() {
  # Prints an interpreter that the project supports.
  local candidate
  for candidate in ${FRAMEWORK_PYTHON:-} python3 python3.12 python3.13 python3.11 python; do
    if command -v "$candidate" >/dev/null 2>&1 &&
      "$candidate" -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      command -v "$candidate"
      return 0
    fi
    if [ -n "${FRAMEWORK_PYTHON:-}" ]; then
      echo "FRAMEWORK_PYTHON=$FRAMEWORK_PYTHON is no Python from 3.11 to 3.13 with the module venv." >&2
      return 1
    fi
  done
  echo "No Python from 3.11 to 3.13 with the module venv was found. Install one, or name it with FRAMEWORK_PYTHON." >&2
  return 1
}

set_up() {
  # Makes or updates the environment $2 with the extras $1 and puts it first on PATH.
  local extras=$1 folder=${2:-${FRAMEWORK_VENV:-.venv}} python stamp wanted
  python=$(find_python)
  wanted=$("$python" - "$extras" <<'PYTHON'
import hashlib, pathlib, sys
print(sys.version.split()[0], sys.argv[1], hashlib.sha256(pathlib.Path("pyproject.toml").read_bytes()).hexdigest(),
      pathlib.Path.cwd())
PYTHON
)
  stamp=$folder/.set_up_$extras
  if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
    echo "setting up $folder with $("$python" --version) and the extras '$extras' (once, some minutes)" >&2
    if ! { [ -x "$folder/bin/python" ] &&
      [ "$("$folder/bin/python" -c 'import sys; print(sys.version)' 2>/dev/null)" = \
        "$("$python" -c 'import sys; print(sys.version)')" ]; }; then
      rm -rf "$folder"
      "$python" -m venv "$folder"
    fi
    if command -v uv >/dev/null 2>&1; then
      uv pip install --quiet --python "$folder/bin/python" --editable ".${extras:+[$extras]}"
    else
      "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".${extras:+[$extras]}"
    fi
    printf '%s\n' "$wanted" >"$stamp"
  fi
  case $folder in /*) PATH=$folder/bin:$PATH ;; *) PATH=$PWD/$folder/bin:$PATH ;; esac
  export PATH
}
