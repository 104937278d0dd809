package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/pfar/pfar/units/systemd"
)

// TestPlaced: for what is no fault of the server's it may come again.
func TestPlaced(t *testing.T) {
	for want, err := range map[string]error{
		`{"how":"memory 64 MiB"}`:                                      nil,
		`{"error":"placing: has children"}`:                            fmt.Errorf("placing: %w", systemd.Final(errors.New("has children"))),
		`{"error":"masked by the administrator; systemctl unmask it"}`: systemd.ErrMasked,
		`{"error":"placing: context deadline exceeded","later":true}`:  fmt.Errorf("placing: %w", context.DeadlineExceeded),
	} {
		how := ""
		if err == nil {
			how = "memory 64 MiB"
		}
		if got, _ := json.Marshal(placed(how, err)); string(got) != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}
