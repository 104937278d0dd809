package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/health"
	"github.com/pfar/pfar/units/operator"
)

// serves reports whether the gateway serves anything. Asking it would start it.
func serves(report control.Report) bool {
	return slices.ContainsFunc(report.Servers, func(s control.Server) bool { return s.State.Up() })
}

// noticesOf are those that the gateway sends. Who may not ask it sees none.
func noticesOf(ctx context.Context, c *pfar, report control.Report) (all []operator.Notice) {
	if serves(report) {
		_ = c.askOperator(ctx, http.MethodGet, "/notices", nil, &all)
	}
	return all
}

// noticesCheck tells of the same.
func noticesCheck(all []operator.Notice) finding {
	const name = "notices"
	if len(all) == 0 {
		return finding{name, none, "none is declared, or pfar is not running", ""}
	}
	if notes := health.Unsent(all); len(notes) > 0 {
		const remedy = "See whether this machine reaches the host, and whether that takes the key: pfar logs --gateway."
		return finding{name, warn, strings.Join(notes, "; "), remedy}
	}
	var last []string
	for _, n := range all {
		words := "nothing sent yet"
		if !n.Sent.IsZero() {
			words = "last sent " + stamp(n.Sent)
		}
		last = append(last, fmt.Sprintf("%s to %s: %s", n.Name, n.Host, words))
	}
	return finding{name, pass, strings.Join(last, "; "), ""}
}
