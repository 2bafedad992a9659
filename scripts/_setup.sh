# Sourced by the scripts beside it: makes a virtual environment with the project and some extras in it.
#
# FRAMEWORK_PYTHON chooses the interpreter, FRAMEWORK_VENV the folder of the environment.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_version() {
  # Prints an interpreter of the Python $1, such as 3.12. Debian ships `venv` without `ensurepip`, which it needs.
  local candidate
  for candidate in "python$1" "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/"$1".*/bin/python; do
    if "$candidate" -c 'import ensurepip, sys, venv; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' "$1" \
      >/dev/null 2>&1; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}

find_python() {
  # Prints the newest interpreter that the project supports, or the chosen one.
  local candidate version
  if [ -z "${FRAMEWORK_PYTHON:-}" ]; then
    for version in 3.13 3.12 3.11; do
      if find_version "$version"; then return 0; fi
    done
  fi
  for candidate in ${FRAMEWORK_PYTHON:-python3 python}; do
    if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
      >/dev/null 2>&1; then
      command -v "$candidate"
      return 0
    fi
  done
  if [ -n "${FRAMEWORK_PYTHON:-}" ]; then
    echo "FRAMEWORK_PYTHON=$FRAMEWORK_PYTHON is no Python from 3.11 to 3.13 with the modules venv and ensurepip." >&2
  else
    echo "No Python from 3.11 to 3.13 with the modules venv and ensurepip was found (on Debian: apt-get install" \
      "python3-venv). Install one, or name it with FRAMEWORK_PYTHON." >&2
  fi
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
      # Whatever was not made here is not removed, since FRAMEWORK_VENV may name any folder.
      if [ -n "$(ls -A "$folder" 2>/dev/null)" ] && ! ls "$folder"/.set_up* >/dev/null 2>&1; then
        echo "$folder was not made by these scripts and is no environment of $python. Remove it, or name another folder" \
          "with FRAMEWORK_VENV." >&2
        return 1
      fi
      rm -rf "$folder"
      mkdir -p "$folder"
      : >"$folder/.set_up" # an environment whose set-up was cut short is recognised by it
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
