package conformance

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pfar's side towards servers is a client too. The suite judges one by what arrives at servers of its own, which are on
// HTTP; pfar's are on stdio. So the suite's server gets a shim before it, which pfar runs as any other server, and the
// suite's reference client drives pfar: what it does arrives at the suite's server as pfar passes it on.
//
//	suite's server <- HTTP <- shim <- stdio <- pfar <- HTTP <- front <- reference client
//
// Without pfar in between, the reference client talks to the suite's server itself.

const roleClient = "client"

// clientRuns are the scenarios in which what pfar does can be seen; the rest are in notJudged.
var clientRuns = []struct {
	suite, revision string
	scenarios       []string
	least           int // checks that the reference client passed when this was written
}{
	{"conformance-stable", "2025-11-25", []string{"initialize", "tools_call", "elicitation-sep1034-client-defaults"}, 7},
	{"conformance-alpha", "2025-11-25", []string{"initialize", "tools_call", "elicitation-sep1034-client-defaults",
		"json-schema-2020-12-preservation"}, 17},
	{"conformance-alpha", "2026-07-28", []string{"tools_call", "request-metadata", "sep-2322-client-request-state",
		"http-invalid-tool-headers", "json-schema-ref-no-deref", "json-schema-2020-12-preservation"}, 35},
}

// notJudged says why the rest cannot judge pfar.
var notJudged = map[string]string{
	"auth/":                 "TestSignIn has them",
	"sse-retry":             "when a stream of HTTP is opened again: the shim's business, stdio has no streams",
	"http-standard-headers": "headers of HTTP: the shim sets them, stdio has none",
	"http-custom-headers":   "headers of HTTP, again",
	"sep-2640-client-":      "what a client does with skills that it loads; pfar loads none, and the reference client knows none",
}

func excused(scenario string) bool {
	for prefix := range notJudged {
		if scenario == prefix || strings.HasSuffix(prefix, "/") && strings.HasPrefix(scenario, prefix) ||
			strings.HasSuffix(prefix, "-") && strings.HasPrefix(scenario, prefix) {
			return true
		}
	}
	return false
}

// TestClient judges the reference client, and pfar driven by it.
func TestClient(t *testing.T) {
	bin, dir := both(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := []string{roleVariable + "=" + roleClient, programsVariable + "=" + bin, installedVariable + "=" + dir}
	verdicts := make([]verdict, len(clientRuns))
	t.Run("runs", func(t *testing.T) {
		for i, r := range clientRuns {
			v := &verdicts[i]
			*v = newVerdict(r.suite, dir, r.revision)
			t.Run(v.name(), func(t *testing.T) {
				t.Parallel()
				for _, scenario := range r.scenarios {
					args := []string{"--scenario", scenario, "--spec-version", r.revision, "--command"}
					v.took[0] += timed(t, func() error {
						_, err := v.suite.run(t.Context(), v.direct, "client", nil, append(args, filepath.Join(dir, "bin", "everything-client"))...)
						return err
					})
					v.took[1] += timed(t, func() (err error) {
						v.said[scenario], err = v.suite.run(t.Context(), v.through, "client", env, append(args, self)...)
						return err
					})
				}
				v.judge(t, r.least)
			})
		}
	})
	wantAll(t, dir, "client", verdicts, excused)
	table("client scenarios", verdicts)
}

// playClient is the command that the suite runs: it brings pfar up with the suite's server behind it, and lets the
// reference client use that.
func playClient(target string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), soon) // the suite would wait for longer, and leave pfar behind
	defer cancel()
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	// The suite names localhost; in a sandbox that leads to the host's only as an address (pfar-declaration(5), NETWORK).
	address := "127.0.0.1:" + u.Port()
	bin := os.Getenv(programsVariable)
	p, err := up(bin, map[string]string{"judge": declare(filepath.Join(bin, "shim"), []string{"-dial", address, target},
		"allowed_domains = ["+quote(address)+"]")})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			fmt.Fprintln(os.Stderr, p.log())
		}
		p.down()
	}()
	own, f, err := before(p, "judge")
	if err != nil {
		return err
	}
	defer f.close()
	c := exec.CommandContext(ctx, filepath.Join(os.Getenv(installedVariable), "bin", "everything-client"), own)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("the reference client: %w", err)
	}
	return nil
}
