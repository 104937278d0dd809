package declaration

import (
	"strings"
	"testing"
)

func TestParseEndpoint(t *testing.T) {
	for _, entry := range []string{"*.com", "*.co.uk", "*.github.io", "*.lan", "*.com:443", "*.COM."} {
		if e, err := parseEndpoint(entry); err == nil || !strings.Contains(err.Error(), "is a public suffix") {
			t.Errorf("%s is %+v, %v", entry, e, err)
		}
	}
	for _, entry := range []string{"*.example.com", "*.example.co.uk:443", "com", "co.uk", "10.0.0.0/8"} {
		if _, err := parseEndpoint(entry); err != nil {
			t.Errorf("%s: %v", entry, err)
		}
	}
	if _, err := parseEndpoint("a*.b.c"); err == nil {
		t.Error("what egress refuses is taken")
	}
}
