package units

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestProbeUnit: pfar doctor finds out whether servers' units can start if its unit has all of their settings.
func TestProbeUnit(t *testing.T) {
	differ := []string{ // what is not about the sandbox
		"Type", "ExecStart", "LoadCredential", "SetCredential", "RemainAfterExit", "NotifyAccess", "ReadWritePaths", "KillMode",
		"RuntimeDirectory", "RuntimeDirectoryPreserve", "RuntimeDirectoryMode", "Restart", "RestartSec", "RestartPreventExitStatus",
		"TimeoutStartSec", "TimeoutStopSec",
	}
	settings := func(file string) (list []string) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, service, _ := strings.Cut(string(text), "\n[Service]\n")
		for line := range strings.Lines(service) {
			key, _, ok := strings.Cut(line, "=")
			if ok && !strings.HasPrefix(line, "#") && !slices.Contains(differ, key) {
				list = append(list, strings.TrimSpace(line))
			}
		}
		return list
	}
	for dir, least := range map[string]int{".": 20, "user": 10} {
		probe, launcher := settings(filepath.Join(dir, "pfar-probe.service")), settings(filepath.Join(dir, "pfar-mcp@.service"))
		if !slices.Equal(probe, launcher) || len(launcher) < least {
			t.Errorf("%s: pfar-probe.service has\n%q, want those of pfar-mcp@.service\n%q", dir, probe, launcher)
		}
	}
}

// TestBubblewrapMountsProc: what mounts over files of a unit's /proc keeps bubblewrap from mounting a /proc of its own
// (mount_namespaces(7), locked mounts). systemd-nspawn leaves another /proc below its root, so that the tests on its
// machines do not see this; tests/vm does, on Debian 13.
func TestBubblewrapMountsProc(t *testing.T) {
	for _, dir := range []string{".", "user"} {
		for _, name := range []string{"pfar-mcp@.service", "pfar-inspect@.service", "pfar-probe.service"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				over := slices.Contains([]string{"ProtectKernelLogs", "ProtectKernelTunables", "ProtectHostname"}, key)
				paths := slices.Contains([]string{"InaccessiblePaths", "ReadOnlyPaths", "TemporaryFileSystem", "BindPaths"}, key)
				if over || paths && strings.Contains(value, "/proc") {
					t.Errorf("%s/%s: %s", dir, name, line)
				}
			}
		}
	}
}
