#!/usr/bin/env bash
# device_only.sh SOURCE BUILD: what GB_DEVICE_ONLY builds calls no library but CUDA's and C's.
set -eu
cmake -S "$1" -B "$2" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGB_DEVICE_ONLY=ON >/dev/null
cmake --build "$2" --target gb_cuda_host_gpu gb_check >/dev/null
calls=$(nm -A --undefined-only "$2"/libgb_*.a "$2"/cuda/libgb_cuda_host_gpu.a 2>/dev/null | grep -E ' U (json_|pcre2_|utf8proc_|lua|uv_|msgpack_)' || true)
[ -z "$calls" ] || { printf 'calls of libraries that a machine with a GPU may lack:\n%s\n' "$calls"; exit 1; }
nm --defined-only "$2"/cuda/libgb_cuda_host_gpu.a 2>/dev/null | grep -q ' T gimbal_backend_open' || { echo "the host code was not built"; exit 1; }
echo "no call of another library"
