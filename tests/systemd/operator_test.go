package systemd

import (
	"strings"
	"testing"
)

// TestOperatorSocket is for root and the members of pfar-admin, on the machine's pfar; the gateway's own user and anybody
// else cannot even connect. What sessions have seen outlives the gateway, and nothing is answered without it.
func TestOperatorSocket(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	if mode := m.Run(t, "stat", "-c", "%a %U:%G", "/run/pfar/operator.sock"); mode != "660 root:pfar-admin\n" {
		t.Errorf("the socket is %s", mode)
	}
	for _, verb := range []string{"approvals", "sessions", "pins"} {
		if r := m.Try("pfar", verb, "--json"); r.Code != 0 || verb != "sessions" && r.Stdout != "[]\n" {
			t.Errorf("root, %s: %s", verb, r)
		}
		for _, user := range []string{"user", "pfar"} {
			r := m.Try("runuser", "-u", user, "--", "env", "PFAR_RUN_DIR=/run/pfar", "pfar", verb)
			if r.Code != 6 || !strings.Contains(r.Stderr, "pfar-admin") {
				t.Errorf("%s, %s: %s", user, verb, r)
			}
		}
	}
	const ask = `import socket; s = socket.socket(socket.AF_UNIX); s.connect("/run/pfar/gateway.sock"); s.send(b"GET /pins HTTP/1.0\r\nHost: localhost\r\n\r\n"); print(s.makefile().read())`
	if r := m.Try("python3", "-c", ask); !strings.Contains(r.Stdout, "there is nothing here") {
		t.Errorf("on the clients' socket: %s", r)
	}
	m.Run(t, "gpasswd", "-a", "user", "pfar-admin")
	if r := m.Try("runuser", "-u", "user", "--", "pfar", "approvals", "--json"); r.Code != 0 || r.Stdout != "[]\n" {
		t.Errorf("a member, who has no pfar of his own: %s", r)
	}
	if files := m.Shell(t, "stat -c '%a %U %n' /var/lib/pfar/gateway/*"); !strings.HasPrefix(files, "600 pfar /var/lib/pfar/gateway/gateway.db\n") {
		t.Errorf("the state is in\n%s", files)
	}
	m.Shell(t, "systemctl kill --signal=KILL pfar-gateway.service; pfar approvals; systemctl restart pfar-gateway.service; pfar approvals; systemctl restart pfar-operator.socket; pfar approvals")
	m.Shell(t, "systemctl stop pfar-gateway.service pfar-gateway.socket pfar-operator.socket; : >/var/lib/pfar/gateway/gateway.db; systemctl start pfar-gateway.socket pfar-operator.socket; systemctl start pfar-gateway.service || :")
	if log := m.Shell(t, "journalctl -u pfar-gateway.service --no-pager -o cat"); !strings.Contains(log, "put a backup in its place") {
		t.Errorf("with an empty file the gateway says\n%s", log)
	}
}
