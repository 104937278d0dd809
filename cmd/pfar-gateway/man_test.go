package main

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve"
)

// TestManualKnowsEveryLimit: each limit stands in the manual with its value, and the manual has no other.
func TestManualKnowsEveryLimit(t *testing.T) {
	b, err := os.ReadFile("../../packaging/man/pfar-gateway.8")
	if err != nil {
		t.Fatal(err)
	}
	manual := string(b)
	_, limits, ok := strings.Cut(manual, ".Sh LIMITS")
	if !ok {
		t.Fatal("the manual has no section LIMITS")
	}
	limits, _, _ = strings.Cut(limits, ".Sh ERRORS")
	ofServers, ofClients, _ := strings.Cut(limits, ".Ss Of clients")
	for section, defaults := range map[string]any{ofServers: registry.DefaultLimits(), ofClients: serve.DefaultLimits()} {
		v := reflect.ValueOf(defaults)
		for i := range v.NumField() {
			row := fmt.Sprintf(".It Cm %s Ta %v Ta ", v.Type().Field(i).Name, v.Field(i).Interface())
			if strings.Count(section, row) != 1 {
				t.Errorf("the manual lacks %q", row)
			}
		}
		if n := strings.Count(section, ".It Cm "); n != v.NumField() {
			t.Errorf("the manual has %d limits where there are %d", n, v.NumField())
		}
	}
	for _, code := range []int{registry.CodeUnavailable, registry.CodeBusy, serve.CodeResult, serve.CodeNoServer, serve.CodeNoSession} {
		if !strings.Contains(manual, fmt.Sprintf(".It Li %d Ta ", code)) {
			t.Errorf("the manual lacks the code %d", code)
		}
	}
	for _, line := range strings.Split(usage, "\n") {
		if flag, _, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(flag, "--") && !strings.Contains(strings.ReplaceAll(manual, "\n", " "), ".It Fl -"+flag[2:]+" ") {
			t.Errorf("the manual lacks %s", flag)
		}
	}
}
