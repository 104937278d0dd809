// Package inspector is what is declared of inspectors beside the built-in one, programs of the owner's and models, and
// of notices that calls wait.
package inspector

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/egress"
)

// Direction is where a text goes. The zero value is looked at in both ways.
type Direction uint8

const (
	Both     Direction = iota
	Outbound           // arguments, to a server
	Inbound            // results, to a model
)

var directions = [...]string{"both", "arguments", "results"}

func (d Direction) String() string {
	if int(d) >= len(directions) {
		return directions[Both]
	}
	return directions[d]
}

// MarshalText writes the word, as a declaration has it.
func (d Direction) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the word; any other is an error.
func (d *Direction) UnmarshalText(b []byte) error {
	i := slices.Index(directions[:], string(b))
	if i < 0 {
		return fmt.Errorf("%.50q is not one of %q", b, directions)
	}
	*d = Direction(i)
	return nil
}

// External is an inspector that the owner declares, a program or a model behind an API like OpenAI's; or, by its Role,
// something else that is reached as such a model is.
type External struct {
	Name         string        `json:"name"`
	Exec         []string      `json:"exec,omitempty"`          // program and arguments, run in a sandbox of its own without a network
	ReadOnly     []string      `json:"read_only,omitempty"`     // what of the host the program may read, beside itself and /usr
	Memory       int64         `json:"memory,omitempty"`        // bytes that one process of it may use
	URL          string        `json:"url,omitempty"`           // of the API's chat completions
	Model        string        `json:"model,omitempty"`         // of URL
	Key          string        `json:"key,omitempty"`           // "vault:NAME": what URL wants as a bearer token; "": nothing
	AllowPrivate []string      `json:"allow_private,omitempty"` // addresses and prefixes that the name in URL may lead to, though they are not public
	Direction    Direction     `json:"direction"`
	Chunk        int           `json:"chunk"`      // bytes of text that it is given at once
	Overlap      int           `json:"overlap"`    // bytes that two chunks have in common
	Size         int           `json:"size"`       // bytes of a text; a longer one is not looked at: the outcome is Missing
	Parallel     int           `json:"parallel"`   // requests at once, of all inspections
	Timeout      time.Duration `json:"timeout_ns"` // of one inspection, waiting for others with it
	Role
}

// Role says what an External is that is no inspector. The zero value is that of an inspector; at most one is set.
type Role struct {
	Notice *Notice `json:"notice,omitempty"` // URL is told that calls wait
	Chat   *Chat   `json:"chat,omitempty"`   // URL is the base address of a model that answers in words

	Account *Account `json:"account,omitempty"` // URL is a homeserver, at which the owner talks with pfar
}

// Kind is the word for what it is.
func (r Role) Kind() string {
	switch {
	case r.Notice != nil:
		return "notice"
	case r.Chat != nil:
		return "model"
	case r.Account != nil:
		return "chat"
	}
	return "inspector"
}

// String is what it is, and its name.
func (e External) String() string { return e.Kind() + " " + e.Name }

// Mistake is what is wrong with one attribute of an inspector.
type Mistake struct {
	Attribute string // "": the whole
	Words     string // what it is, and what is wanted
}

func (m Mistake) Error() string { return strings.TrimSpace(m.Attribute + " " + m.Words) }

// Mistakes are those that an error of Declared is made of.
func Mistakes(err error) []Mistake {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var all []Mistake
	for _, one := range joined.Unwrap() {
		if m, ok := errors.AsType[Mistake](one); ok {
			all = append(all, m)
		}
	}
	return all
}

// Declared returns e with the defaults for what it leaves open, or says what is wrong with it, all of it (Mistakes).
func (e External) Declared() (External, error) {
	var problems []error
	sized := "memory" // what of an inspector's size is declared
	if e.Memory == 0 {
		sized = "parallel"
	}
	bad := func(attribute, format string, args ...any) {
		problems = append(problems, Mistake{attribute, fmt.Sprintf(format, args...)})
	}
	if len(e.Name) > maxName || !named.MatchString(e.Name) {
		bad("", "%.50q is not a name: want lower-case letters, digits and dashes, at most 23, a letter first", e.Name)
	}
	switch {
	case e.Notice != nil:
		e.notice(bad)
	case e.Chat != nil:
		e.chat(bad)
	case e.Account != nil:
		e.account(bad)
	case len(e.Exec) > 0 && e.URL != "":
		defaults(&e.Chunk, modelChunk)
		bad("url", "stands beside exec: want one of them")
	case len(e.Exec) > 0:
		e.program(bad)
	case e.URL != "":
		e.model(bad)
	default:
		defaults(&e.Chunk, modelChunk)
		bad("", "has neither exec nor url: want one of them")
	}
	defaults(&e.Size, 1<<20)
	defaults(&e.Parallel, 4)
	defaults(&e.Timeout, 20*time.Second)
	if e.Chunk < 256 || e.Chunk > maxChunk {
		bad("chunk", "%d: want 256 bytes to 1 MiB", e.Chunk)
	}
	if e.Overlap < 0 || e.Overlap > e.Chunk/2 {
		bad("overlap", "%d: want half of a chunk at most", e.Overlap)
	}
	if e.Size < 1 || e.Size > maxText {
		bad("size", "%d: want at most 64 MiB", e.Size)
	}
	if e.Parallel < 1 || e.Parallel > MaxParallel {
		bad("parallel", "%d: want 1 to %d", e.Parallel, MaxParallel)
	} else if most := int64(MaxMemory / e.Parallel); e.Memory > most {
		bad(sized, "is too much: %d at once with %d MiB each have more than 2 GiB; want a memory of %d MiB at most, or "+
			"fewer at once", e.Parallel, e.Memory>>20, most>>20)
	}
	if e.Timeout < 100*time.Millisecond || e.Timeout > 5*time.Minute {
		bad("timeout", "%v: want 100ms to 5m", e.Timeout)
	}
	return e, errors.Join(problems...)
}

const (
	modelChunk = 12 << 10 // bytes: some 3,000 tokens, for small models
	maxChunk   = 1 << 20  // bytes: escaped in JSON it is to fit what an inspector reads
	maxText    = 64 << 20 // bytes
)

// MaxParallel bounds External.Parallel, and MaxMemory what the processes of a program have together, in bytes: its unit
// has room for these and for what runs them.
const (
	MaxParallel = 64
	MaxMemory   = 2 << 30
)

// program checks what is said of a program, and adds its defaults.
func (e *External) program(bad func(attribute, format string, args ...any)) {
	defaults(&e.Chunk, 256<<10)
	defaults(&e.Overlap, 4<<10)
	defaults(&e.Memory, 512<<20)
	if !path.IsAbs(e.Exec[0]) || strings.ContainsRune(strings.Join(e.Exec, ""), 0) {
		bad("exec", "%.100q: want the whole path of a program", e.Exec[0])
	}
	if e.Memory < 1<<20 {
		bad("memory", "%d: want a mebibyte or more", e.Memory)
	}
	if e.Model != "" {
		bad("model", "belongs to url, and here is exec")
	}
	if e.Key != "" {
		bad("key", "belongs to url, and here is exec")
	}
	if len(e.AllowPrivate) > 0 {
		bad("allow_private", "belongs to url: a program has no network")
	}
}

// model checks what is said of a model, and adds its defaults.
func (e *External) model(bad func(attribute, format string, args ...any)) {
	defaults(&e.Chunk, modelChunk)
	defaults(&e.Overlap, 1<<10)
	e.remote(bad)
	if len(e.ReadOnly) > 0 {
		bad("read_only", "belongs to exec, and here is url")
	}
	if e.Memory != 0 {
		bad("memory", "belongs to exec, and here is url")
	}
	if e.Model == "" {
		bad("model", "is missing")
	}
}

// remote checks what is said of where it is, and of the key.
func (e *External) remote(bad func(attribute, format string, args ...any)) {
	if err := address(e.URL); err != nil {
		bad("url", "%v", err)
	} else if _, _, _, err := e.Egress(); err != nil {
		attribute, words, _ := strings.Cut(err.Error(), " ")
		bad(attribute, "%s", words)
	}
	if e.Key != "" && (len(e.Key) > maxKey || !vaultKey.MatchString(e.Key)) {
		bad("key", "is not the name of a secret: want \"vault:NAME\", not the key itself")
	}
}

// Secret is the key of the vault that the API wants; "" for none.
func (e External) Secret() string { return strings.TrimPrefix(e.Key, "vault:") }

// Egress is where a model is, or who is told, and all that may be reached for that. Of an error the first word is the
// attribute.
func (e External) Egress() (host string, port uint16, policy egress.Policy, err error) {
	u, err := url.Parse(e.URL)
	if err != nil || u.Hostname() == "" {
		return "", 0, policy, errors.New("url is not an address")
	}
	port = map[string]uint16{"http": 80, "https": 443}[u.Scheme]
	if p := u.Port(); p != "" {
		var ok bool
		if port, ok = egress.ParsePort(p); !ok {
			return "", 0, policy, errors.New("url has an invalid port")
		}
	}
	name := u.Hostname()
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	at, err := egress.ParseEndpoint(fmt.Sprintf("%s:%d", name, port))
	if err != nil || at.Wildcard || at.Host == "" && !at.Prefix.IsSingleIP() {
		return "", 0, policy, errors.New("url has a host that is neither a name nor an address")
	}
	policy.Endpoints = []egress.Endpoint{at}
	if at.Host == "" {
		return at.Prefix.Addr().String(), port, policy, nil
	}
	private := egress.Private{Host: at.Host}
	for _, text := range e.AllowPrivate {
		p, err := egress.ParsePrivate(text)
		if err != nil {
			return "", 0, policy, fmt.Errorf("allow_private %w", err)
		}
		private.Prefixes = append(private.Prefixes, p)
	}
	if len(private.Prefixes) > 0 {
		policy.Private = []egress.Private{private}
	}
	return at.Host, port, policy, nil
}

const (
	maxName = 23 // as of servers: it is part of a user's name
	maxKey  = len("vault:") + 64
)

// The bounds stand apart, for an expression with {1,64} takes 50 kB in each process.
var (
	named    = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	vaultKey = regexp.MustCompile(`^vault:[a-z0-9_-]+$`)
)

func defaults[T int | int64 | time.Duration](v *T, to T) {
	if *v == 0 {
		*v = to
	}
}

// address reports what is wrong with an address that texts are sent to: in the clear they are to this machine only.
func address(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return errors.New("must be an address without a user name and a password") // which it may hold
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() == "localhost" {
		return fmt.Errorf("%.100q: want the address of this machine, 127.0.0.1, in place of localhost", s)
	}
	if u.Scheme != "https" && (u.Scheme != "http" || err != nil || !ip.IsLoopback()) {
		return fmt.Errorf("%.100q: want https, or 127.0.0.1", s)
	}
	return nil
}

// Question is what an inspector is asked about a part of a text: a program reads it as JSON, to the end of its input.
type Question struct {
	Version   int    `json:"version"`   // 1
	Direction string `json:"direction"` // "arguments", "results"
	Server    string `json:"server"`
	Tool      string `json:"tool"`
	Label     string `json:"label"` // of the text, in both words: "sensitive raw"
	Part      int    `json:"part"`  // from 1
	Parts     int    `json:"parts"`
	Text      string `json:"text"`
}
