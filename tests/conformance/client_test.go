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

	"github.com/pfar/pfar/tests/trust"
)

// pfar's side towards servers is a client too. The suite judges one by what arrives at servers of its own, which are on
// HTTP; pfar's are on stdio. So the suite's server gets a shim before it, which pfar runs as any other server, and the
// suite's reference client drives pfar: what it does arrives at the suite's server as pfar passes it on.
//
//	suite's server <- HTTP <- shim <- stdio <- pfar <- HTTP <- front <- reference client
//
// Without pfar in between, the reference client talks to the suite's server itself. What the shim would do in pfar's
// place is judged with the suite's server as a remote one:
//
//	suite's server <- HTTP <- pfar <- HTTP <- front <- reference client

const (
	roleClient       = "client"
	roleRemoteClient = "remote-client"
)

// clientRuns are the scenarios in which what pfar does can be seen; the rest are in notJudged.
var clientRuns = []struct {
	suite, revision string
	way             string // onStdio or remotely
	scenarios       []string
	least           int // checks that the reference client passed when this was written
}{
	{"conformance-stable", "2025-11-25", onStdio, []string{"initialize", "tools_call",
		"elicitation-sep1034-client-defaults"}, 7},
	{"conformance-alpha", "2025-11-25", onStdio, []string{"initialize", "tools_call",
		"elicitation-sep1034-client-defaults", "json-schema-2020-12-preservation"}, 17},
	{"conformance-alpha", "2026-07-28", onStdio, []string{"tools_call", "request-metadata",
		"sep-2322-client-request-state", "http-invalid-tool-headers", "json-schema-ref-no-deref",
		"json-schema-2020-12-preservation"}, 35},
	{"conformance-stable", "2025-11-25", remotely, []string{"sse-retry"}, 3},
	{"conformance-alpha", "2025-11-25", remotely, []string{"sse-retry"}, 3},
	{"conformance-alpha", "2026-07-28", remotely, []string{"http-standard-headers", "http-custom-headers"}, 27},
}

// notJudged says why the rest cannot judge pfar.
var notJudged = map[string]string{
	"auth/": "TestSignIn has them",
	"sep-2640-client-": "what a client does with skills that it loads; pfar loads none, and the reference client knows " +
		"none",
}

// refusedChecks are those that pfar loses, by scenario and id, with the reason. One that passes has no place here any
// more.
var refusedChecks = map[[2]string]string{
	{"http-custom-headers", "sep-2243-client-omit-null"}: "the reference client gives null for a boolean, and pfar makes " +
		"no call that the tool's own schema forbids; TestStateless of cmd/pfar-adapter/remote has null where it is " +
		"allowed",
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
	env := []string{programsVariable + "=" + bin, installedVariable + "=" + dir}
	verdicts := make([]verdict, len(clientRuns))
	t.Run("runs", func(t *testing.T) {
		for i, r := range clientRuns {
			v := &verdicts[i]
			*v = newVerdict(r.suite, dir, r.revision)
			v.way = r.way
			role := map[string]string{onStdio: roleClient, remotely: roleRemoteClient}[r.way]
			t.Run(v.name(), func(t *testing.T) {
				t.Parallel()
				for _, scenario := range r.scenarios {
					args := []string{"--scenario", scenario, "--spec-version", r.revision, "--command"}
					v.took[0] += timed(t, func() error {
						_, err := v.suite.run(t.Context(), v.direct, "client", nil, append(args, filepath.Join(dir, "bin", "everything-client"))...)
						return err
					})
					v.took[1] += timed(t, func() (err error) {
						v.said[scenario], err = v.suite.run(t.Context(), v.through, "client",
							append(env, roleVariable+"="+role), append(args, self)...)
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
func playClient(target string) error {
	return playBehind(target, func(address string) string {
		return declare(filepath.Join(os.Getenv(programsVariable), "shim"), []string{"-dial", address, target},
			"allowed_domains = ["+quote(address)+"]")
	})
}

// playRemoteClient does the same with the suite's server as a remote one.
func playRemoteClient(target string) error {
	return playBehind(target, func(address string) string {
		_, path, _ := strings.Cut(strings.TrimPrefix(target, "http://"), "/")
		return fmt.Sprintf("server {\n  transport = \"stream-http\"\n  url = %s\n}\n%s",
			quote("http://"+address+"/"+path), trust.Honest)
	})
}

// playBehind does it with what declares the suite's server, of which it gets the address.
func playBehind(target string, declaration func(address string) string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), soon) // the suite would wait for longer, and leave pfar behind
	defer cancel()
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	// The suite names localhost; in a sandbox that leads to the host's only as an address (pfar-declaration(5), NETWORK).
	p, err := up(os.Getenv(programsVariable), map[string]string{"judge": declaration("127.0.0.1:" + u.Port())})
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
