package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/internet"
	"github.com/pfar/pfar/tests/trust"
	"github.com/pfar/pfar/units/control"
)

// The suite also judges how a client signs in to a remote server. pfar has one declared, an owner who says yes to whom
// it names, and a browser that follows redirects; what arrives at the suite's servers is judged.
//
//	suite's servers <- HTTP <- origins <- TLS <- pfar login, pfar-adapter
//
// The suite and origins are in one network, and pfar is in another one, which has nothing but a cable to the first.

const roleSignIn = "sign-in"

// clientDocument is where the suite wants a client's metadata to be.
const clientDocument = "https://conformance-test.local/client-metadata.json"

// attempts bounds how often the owner of one scenario signs in.
const attempts = 4

// playSignIn is the command that the suite runs.
func playSignIn(target string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	o := new(origins)
	server := o.outward(target)
	authority, err := o.serve()
	if err != nil {
		return err
	}
	given, err := registered(ctx, o, target)
	if err != nil {
		return err
	}
	p := &pfar{}
	defer func() {
		if err != nil {
			fmt.Fprintln(os.Stderr, p.log())
		}
		err = errors.Join(err, p.down())
	}()
	if err := p.prepare(map[string]string{"judge": fmt.Sprintf("auth = { token = \"vault:judge_token\" }\nserver {\n"+
		"  transport = \"stream-http\"\n  url = %s\n}\n%s", quote(server), trust.Honest)}); err != nil {
		return err
	}
	for name, text := range map[string]string{"oauth.d": given.file, "clients.d": "token_sha256 = [\"" +
		strings.Repeat("0", 64) + "\"]\nservers = [\"*\"]\nprofile = \"operator\"\nrelax = \"a test\"\n"} {
		dir := filepath.Join(p.dir, name)
		if err := errors.Join(os.Mkdir(dir, 0o755),
			os.WriteFile(filepath.Join(dir, "agent.hcl"), []byte(text), 0o644)); err != nil {
			return err
		}
	}
	if err := p.startApart(os.Getenv(programsVariable), authority); err != nil {
		return err
	}
	owner := &owner{pfar: p, client: control.Client{Path: filepath.Join(p.run, "control.sock")}}
	if given.secret != "" {
		if out, err := owner.command(ctx, given.secret+"\n", "vault", "set", "judge_client"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return owner.uses(ctx)
}

// startApart starts pfar in a network of its own, at the far end of a cable: origins' names lead to the near one.
func (p *pfar) startApart(bin string, authority []byte) error {
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	dir := p.dir
	hosts, roots := filepath.Join(dir, "hosts"), filepath.Join(dir, "roots.pem")
	lines := "127.0.0.1 localhost\n" + internet.Host + " " + strings.Join(allNames(), " ") + "\n"
	if err := errors.Join(os.WriteFile(hosts, []byte(lines), 0o644),
		os.WriteFile(roots, authority, 0o644)); err != nil {
		return err
	}
	script := fmt.Sprintf(`set -e
ip link set lo up
ip link add pfar0 type veth peer name pfar1 netns %[1]d
ip addr add %[2]s/24 dev pfar0
ip link set pfar0 up
nsenter --net=/proc/%[1]d/ns/net ip addr add %[3]s/24 dev pfar1
nsenter --net=/proc/%[1]d/ns/net ip link set pfar1 up
mount --bind %[4]s /etc/hosts
mount --bind %[5]s %[6]s
exec "$@"`, os.Getpid(), internet.Ours, internet.Host, hosts, roots, bundle)
	_, err := p.start(bin, "unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", script,
		"sh")
	if err == nil {
		err = p.await(func(r control.Report) (bool, error) {
			return slices.ContainsFunc(r.Servers, func(s control.Server) bool { return s.State == control.NeedsLogin }), nil
		})
	}
	return err
}

// owner is the person in front of pfar.
type owner struct {
	*pfar
	client control.Client
}

// given is what the owner knows of a client.
type given struct {
	file   string // of oauth.d
	secret string // "": it has none
}

// registered is the client that the scenario says there is, else one that has published its metadata.
func registered(ctx context.Context, at *origins, target string) (g given, err error) {
	var told struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
	}
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &told); err != nil {
			return g, err
		}
	}
	if told.ID == "" {
		return given{file: fmt.Sprintf("client_metadata = %q\n", clientDocument)}, nil
	}
	issuer, err := issuerOf(ctx, target)
	return given{secret: told.Secret, file: fmt.Sprintf("provider \"judge\" {\n  client_id = %q\n"+
		"  secret = \"vault:judge_client\"\n  key = \"judge_token\"\n  issuer = %q\n}\n",
		told.ID, at.outward(issuer))}, err
}

// issuerOf is what an owner knows who has registered a client.
func issuerOf(ctx context.Context, target string) (string, error) {
	u := strings.Replace(target, "/mcp", "/.well-known/oauth-protected-resource/mcp", 1)
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return "", err
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	var m struct {
		Issuers []string `json:"authorization_servers"`
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil || len(m.Issuers) == 0 {
		return "", fmt.Errorf("the server names no authorization server: %w", err)
	}
	return m.Issuers[0], nil
}

// signsIn says yes to whom the server names, and opens the link.
func (o *owner) signsIn(ctx context.Context, scopes []string) error {
	l := control.Login{Scopes: scopes}
	for range attempts {
		opened := false
		var browsing sync.WaitGroup
		got, err := o.client.Login(ctx, "judge", l, func(s control.SignIn) {
			if link := s.Step.URL; link != "" && !opened {
				opened = true
				browsing.Go(func() { o.inside(ctx, "", "curl", "-sSL", "--max-time", "60", link) })
			}
		})
		browsing.Wait()
		if err != nil || got.Confirm == nil {
			return err
		}
		l.Confirmed = got.Confirm
	}
	return errors.New("it names another provider each time")
}

// uses signs in and calls the suite's tool, and then does what pfar says to type, until there is nothing more.
func (o *owner) uses(ctx context.Context) error {
	var scopes []string
	for range attempts {
		since := time.Now()
		err := o.signsIn(ctx, scopes)
		said := fmt.Sprint(err)
		if err == nil {
			if said, err = o.calls(ctx, since); err == nil {
				return nil
			}
		}
		forget := strings.Contains(said, "pfar vault remove judge_token")
		more := wanted(said)
		switch {
		case forget:
			if out, err := o.command(ctx, "", "vault", "remove", "judge_token"); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
		case !strings.Contains(said, "pfar login judge"), more != nil && slices.Equal(more, scopes):
			return fmt.Errorf("%w: %s", err, said) // the same again is of no use
		}
		scopes = more
	}
	return errors.New("there is no end to it")
}

// calls calls the suite's tool as soon as pfar knows how the server takes the token.
func (o *owner) calls(ctx context.Context, since time.Time) (said string, err error) {
	known := []control.State{control.Running, control.Failed, control.Offline, control.NeedsLogin}
	good := func(r control.Report) (bool, error) {
		s := r.Servers[slices.IndexFunc(r.Servers, func(s control.Server) bool { return s.Name == "judge" })]
		said = s.Detail + "\n" + s.Remedy.Command
		return s.State == control.Running || s.Since.After(since) && slices.Contains(known, s.State), nil
	}
	if now, _ := good(o.report); !now { // a server that runs takes another token as it is
		if err := o.await(good); err != nil {
			return said, err
		}
	}
	out, err := o.command(ctx, "", "call", "--client", "agent", "judge.test-tool")
	return said + "\n" + out, err
}

// wanted are the scopes of the command that pfar says to type; nil: it says none.
func wanted(said string) (scopes []string) {
	for _, m := range regexp.MustCompile(`--scope ([a-z:]+)`).FindAllStringSubmatch(said, -1) {
		if !slices.Contains(scopes, m[1]) {
			scopes = append(scopes, m[1])
		}
	}
	return scopes
}

// command runs pfar where its names lead somewhere.
func (o *owner) command(ctx context.Context, stdin string, args ...string) (string, error) {
	return o.inside(ctx, stdin, filepath.Join(os.Getenv(programsVariable), "pfar"), args...)
}

func (o *owner) inside(ctx context.Context, stdin, program string, args ...string) (string, error) {
	line := append([]string{"--target", fmt.Sprint(o.cmd.Process.Pid), "--net", "--mount", program}, args...)
	c := exec.CommandContext(ctx, "nsenter", line...)
	c.Env, c.Stdin = o.env, strings.NewReader(stdin)
	out, err := c.CombinedOutput()
	fmt.Fprintf(os.Stderr, "%s %q: %v\n%s\n", filepath.Base(program), args, err, out)
	return string(out), err
}

// refusedScenarios are those of which checks fail, by how their names begin, with the reason. One that passes has no
// place here any more.
var refusedScenarios = map[string]string{
	"auth/client-credentials-": "a grant without a person: pfar signs people in, and a program's own secret is a key of " +
		"the vault",
	"auth/cross-app-access-":   "a company's identity provider in place of a person: an extension that pfar does not have",
	"auth/enterprise-managed-": "the same under its later name",
	"auth/dpop":                "tokens that are bound to a key: an extension that pfar does not have",
	"auth/wif-":                "identities of workloads: an extension that pfar does not have",
	"auth/2025-03-26-oauth-endpoint-fallback": "endpoints that nobody names: pfar sends no code to where it has only " +
		"guessed, and PKCE is not promised there",
	"conformance-stable auth/2025-03-26-oauth-metadata-backcompat": "the metadata is of another issuer than the one that " +
		"was asked (RFC 8414 section 3.3); the later suite has that right",
}

// refuses returns how the entry of a scenario begins; "": it has none, and is to pass.
func refuses(suite, scenario string) string {
	for begin := range refusedScenarios {
		if strings.HasPrefix(scenario, begin) || strings.HasPrefix(suite+" "+scenario, begin) {
			return begin
		}
	}
	return ""
}

// signInExamples are the scenarios of make test: everything that a sign-in is made of is in one of them.
var signInExamples = []string{"auth/basic-cimd", "auth/pre-registration", "auth/scope-step-up", "auth/iss-wrong-issuer",
	"auth/authorization-server-migration"}

// signInsAtOnce bounds how many scenarios run at the same time: each has a pfar.
const signInsAtOnce = 4

// TestSignIn judges pfar's sign-in in all scenarios of both suites, each in the latest revision that it has.
func TestSignIn(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	bin, dir := both(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := []string{roleVariable + "=" + roleSignIn, programsVariable + "=" + bin, installedVariable + "=" + dir}
	places := make(chan struct{}, signInsAtOnce)
	used := map[string]bool{} // entries of refusedScenarios
	var running sync.WaitGroup
	for _, name := range []string{"conformance-stable", "conformance-alpha"} {
		s := suite{name: name, dir: dir, alone: true}
		for _, scenario := range s.scenarios(t, "client") {
			if !strings.HasPrefix(scenario, "auth/") || testing.Short() && !slices.Contains(signInExamples, scenario) {
				continue
			}
			used[refuses(name, scenario)] = true
			running.Go(func() {
				places <- struct{}{}
				defer func() { <-places }()
				judgeSignIn(t, s, scenario, env, self)
			})
		}
	}
	running.Wait()
	for begin, why := range refusedScenarios {
		if !used[begin] && !testing.Short() {
			t.Errorf("no suite has a scenario %s (%s)", begin, why)
		}
	}
}

// judgeSignIn wants all checks of a scenario to pass, or at least one not to if there is a reason.
func judgeSignIn(t *testing.T, s suite, scenario string, env []string, self string) {
	got := results{}
	said, err := s.run(t.Context(), got, "client", env, "--scenario", scenario, "--command", self)
	if err != nil {
		t.Errorf("%v\n%s", err, said)
		return
	}
	var lost []string
	for _, c := range got[scenario] {
		if c.Status != passed && c.Status != "INFO" {
			lost = append(lost, c.ID+": "+c.reason())
		}
	}
	switch entry := refuses(s.name, scenario); {
	case len(got[scenario]) == 0:
		t.Errorf("%s: %s left no checks, but %q", s.name, scenario, sorted(got, nil))
	case entry == "" && lost != nil:
		t.Errorf("%s: %s:\n%s\nthe owner wrote:\n%s", s.name, scenario, strings.Join(lost, "\n"), said)
	case entry != "" && lost == nil:
		t.Errorf("%s: %s passes now: take %q out of refusedScenarios", s.name, scenario, entry)
	}
}
