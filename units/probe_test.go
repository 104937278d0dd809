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
