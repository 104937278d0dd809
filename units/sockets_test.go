package units

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWhoMayConnect holds the sockets of the machine's pfar to what pfard(8) says of who may connect. What has no mode
// is in a server's own network namespace, or on TCP.
func TestWhoMayConnect(t *testing.T) {
	const admins = "User=root Group=pfar-admin Mode=0660"
	want := map[string]string{
		"pfar-operator.socket": admins, "pfard-look.socket": admins, "pfar-egress-monitor@.socket": admins,
		"pfar-passkey.socket":  "User=root Group=pfar-console Mode=0660",
		"pfard-control.socket": "User=root Group=pfar Mode=0660", "pfar-gateway.socket": "Mode=0600", "pfard-credentials.socket": "Mode=0600",
		"pfar-inspect@.socket": "User=pfar Mode=0600", "pfar-model@.socket": "User=pfar Mode=0600",
		"pfar-chat@.socket":   "User=pfar Mode=0600",
		"pfard-attach.socket": "Mode=0666", // pfard asks systemd who connects
		"pfar-egress@.socket": "", "pfar-gateway-http.socket": "", "pfar-gateway-metrics.socket": "",
		"pfar-console.socket": "",
	}
	files, err := filepath.Glob("*.socket")
	if err != nil || len(files) != len(want) {
		t.Fatalf("%d sockets, want %d; %v", len(files), len(want), err)
	}
	setting := regexp.MustCompile(`(?m)^Socket((?:User|Group|Mode)=.*)$`)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range setting.FindAllStringSubmatch(string(text), -1) {
			got = append(got, m[1])
		}
		if who := strings.Join(got, " "); who != want[f] {
			t.Errorf("%s: %q, want %q", f, who, want[f])
		}
	}
}
