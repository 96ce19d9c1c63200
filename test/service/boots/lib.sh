# What the scripts of the boots share. Each check is a line "ok NAME" or "FAIL NAME" on the output, which test/service/run counts.

# check NAME COMMAND…: the command succeeds.
check() {
  local name=$1 out
  shift
  if out=$("$@" 2>&1); then
    echo "ok   $name"
  else
    echo "FAIL $name: $* (status $?)"
    printf '%s\n' "$out" | tail -n 15 | sed 's/^/     /'
  fi
}

# within SECONDS COMMAND…: the command succeeds some time before they are over.
within() {
  local end=$(($(date +%s) + $1)) out
  shift
  until out=$("$@" 2>&1); do
    if [ "$(date +%s)" -ge $end ]; then
      echo "$out"
      return 1
    fi
    sleep 0.2
  done
}

# roomy gives the node thresholds for memory alone: how full this machine's disk is must not decide what runs.
roomy() {
  mkdir -p /etc/berth/config.d
  cat >/etc/berth/config.d/disk.conf <<'EOF'
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard: {memory.available: 100Mi}
imageGCHighThresholdPercent: 100
EOF
}

# ready POD…: berth says that all containers of the pods are ready.
ready() {
  local pod
  for pod in "$@"; do
    [ "$(berth ps "$pod" --no-headers 2>&1 | awk '$3 ~ /^([0-9]+)\/\1$/ || split($3, a, "/") == 2 && a[1] == a[2] {print $4}')" = Running ] || { berth ps 2>&1; berth why "$pod" 2>&1 | tail -n 5; return 1; }
  done
}


# agent prints the agent's process id.
agent() { systemctl show berth -p MainPID --value; }

# started prints, for each container of each pod, its id and its start time.
started() { berth ps -o yaml | grep -oE '(containerID|startedAt|restartCount): .*' | sort; }

same() { [ "$1" = "$2" ] || { diff <(echo "$1") <(echo "$2"); return 1; }; }

differs() { [ "$1" != "$2" ]; }

# doctor runs berth doctor, of which warnings are allowed: the lab's containerd is an old one.
doctor() {
  local rc=0
  berth doctor || rc=$?
  [ $rc -lt 2 ]
}
