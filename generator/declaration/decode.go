package declaration

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/nearest"
	"github.com/pfar/pfar/policies/visible"
)

const (
	defaultMemory  = 256 << 20
	defaultTasks   = 256 // node has 11 threads and twice that under npx; a browser server needs about 200
	defaultTimeout = 60 * time.Second

	maxLine = 4095 // PATH_MAX, less the NUL
)

// decoder turns the tree of a file into a Server, by the schema.
type decoder struct {
	*builder
	server Server
	client *Client           // nil unless the file declares one
	own    access.Server     // the client's word on one server, or its tools on all
	given  map[string]*field // keys of the file and of server, whether their values are good or not
	auths  []*field
	envs   []*field
	tool   Tool
	about  string           // the name of tool
	alike  map[string]alias // aliases of the file, by what the command line takes for the same
	token  *field
	scoped *field // scopes
	paths  []mount
	remote *egress.Endpoint // host of url

	detailed []*field // of auth, those that are tables
	delivery delivery // the one that is read

	blocked        []*node // of Server.Blocked
	private        *field
	pinned         *field // tls_pins
	domainsUnknown bool   // an entry of allowed_domains was refused
	hostsUnknown   bool   // a credential was refused that may be brokered
}

func newDecoder(b *builder, name string) *decoder {
	return &decoder{builder: b, given: map[string]*field{}, alike: map[string]alias{}, server: Server{
		Name: name, File: b.src.name, Label: Sensitive, Allowed: []egress.Endpoint{}, Transport: Stdio,
		Enabled: true, Autostart: true, Timeout: defaultTimeout, Pins: TrustFirst,
		Sandbox: Sandbox{Memory: defaultMemory, Tasks: defaultTasks, ReadOnlyFS: true, AllowTmp: true},
		Tools:   map[string]Tool{}, places: map[string]hcl.Range{},
	}}
}

func (d *decoder) file(root *node) {
	d.section(fileSection(), root)
	d.checkName()
	d.checkLaunch()
	d.checkBlocked()
	d.checkPrivate()
	d.checkPinned()
	d.checkShell()
	d.checkDeliveries()
	d.checkTLSPins()
	d.checkVariables()
	d.checkScopes()
	d.checkMounts()
	d.checkSessions()
}

// section reads the fields of a table by the rows of the schema.
func (d *decoder) section(s section, n *node) {
	for _, f := range n.fields {
		k, ok := s.find(f.key)
		if !ok {
			where := map[string]string{"": "at the top", credentialSection: "in a " + credentialSection}[s.name]
			if where == "" {
				where = "in " + s.name
			}
			d.report(problem(f.rng, "Unknown key", "%s is not known %s. %s", quoteName(f.key), where, d.remedy(s, f.key)))
			d.hidden.unread(f)
			continue
		}
		if s.name == "" || s.name == serverSection && d.client == nil {
			if first, twice := d.given[k.name]; twice {
				d.report(problem(f.rng, "Duplicate key", "%s was given already in line %d: it stands at the top or in server. Keep one of the two.", quote(k.name), first.rng.Start.Line))
				continue
			}
			d.given[k.name] = f
		}
		if f.val.kind == null {
			d.report(problem(f.val.rng, "Wrong type", "%s is null. Leave the key out.", k.name))
			continue
		}
		d.placed(s, f)
		k.read(d, f)
	}
}

// placed notes where a key was given, for those who judge the server later. The keys of server are the file's.
func (d *decoder) placed(s section, f *field) {
	at := f.val.rng
	if f.val.kind == table {
		at = f.rng
	}
	switch s.name {
	case "", serverSection:
		d.server.places[f.key] = at
	case sandboxSection, trustSection, toolsSection:
		d.server.places[s.name+"."+f.key] = at
	}
}

func (d *decoder) placedEntry(list string, i int, at hcl.Range) {
	d.server.places[list+"["+strconv.Itoa(i)+"]"] = at
}

// example is how a key is written, for remedies.
func (d *decoder) example(name string) string {
	for _, s := range d.sections() {
		if k, ok := s.find(name); ok && k.example != "" {
			return name + " = " + k.example
		}
	}
	return d.form(name)
}

func (d *decoder) wrongType(f *field, n *node, want string) {
	if n.kind == broken {
		return
	}
	d.report(problem(n.rng, "Wrong type", "%s takes %s, not %s. Write %s.", f.key, want, n.kind, d.example(f.key)))
}

func (d *decoder) text(f *field) (string, bool) {
	if f.val.kind != text {
		d.wrongType(f, f.val, "a string")
		return "", false
	}
	return f.val.text, true
}

// line reads a string that is shown to people or given to the kernel: not empty, without control characters.
func (d *decoder) line(f *field) (string, bool) {
	s, ok := d.text(f)
	switch {
	case !ok:
		return "", false
	case strings.TrimSpace(s) == "":
		d.report(problem(f.val.rng, "Empty value", "%s is empty. Write %s, or leave the key out.", f.key, d.example(f.key)))
		return "", false
	case len(s) > maxLine:
		d.report(problem(f.val.rng, "Too long", "%s has %d bytes, and room for %d. Write a shorter one.", f.key, len(s), maxLine))
		return "", false
	case strings.ContainsFunc(s, visible.Deceptive):
		d.report(problem(f.val.rng, "Invisible character", "%s holds a control character or one that cannot be seen: %s. Remove it.", f.key, quote(s)))
		return "", false
	}
	return s, true
}

func (d *decoder) truth(f *field) (bool, bool) {
	n := f.val
	if n.kind == boolean {
		return n.truth, true
	}
	if n.kind == text {
		v := "true"
		if strings.HasSuffix(bareWord(n.text), "false.") {
			v = "false"
		}
		if n.text == "true" || n.text == "false" {
			v = n.text
		}
		d.report(problem(n.rng, "Wrong type", "%s takes true or false, not a string. Write %s = %s, without quotes.", f.key, f.key, v))
		return false, false
	}
	d.wrongType(f, n, "true or false")
	return false, false
}

// trust reads true, false or "forbidden".
func trust(flag func(*decoder) *gate.Flag) func(*decoder, *field) {
	return func(d *decoder, f *field) {
		if f.val.kind == text && nearest.Keyword(strings.ToLower(f.val.text), []string{gate.Forbidden.String()}) != "" {
			if f.val.text != gate.Forbidden.String() {
				d.report(problem(f.val.rng, "Unknown "+f.key, `%s is none of true, false or "forbidden". Write %s = "forbidden".`, quoteName(f.val.text), f.key))
				return
			}
			*flag(d) = gate.Forbidden
			return
		}
		if v, ok := d.truth(f); ok && v {
			*flag(d) = gate.Yes
		} else if ok {
			*flag(d) = gate.No
		}
	}
}

// texts reads a list of strings; what is wrong with one is said of that one.
func (d *decoder) texts(f *field) []*node {
	if f.val.kind != list {
		if f.val.kind == text {
			d.report(problem(f.val.rng, "Wrong type", "%s takes a list, not a string. Write %s = [%s].", f.key, f.key, quote(f.val.text)))
			return nil
		}
		d.wrongType(f, f.val, "a list of strings")
		return nil
	}
	var good []*node
	for _, n := range f.val.items {
		switch n.kind {
		case text:
			good = append(good, n)
		case number, boolean:
			w := strings.TrimSpace(string(n.rng.SliceBytes(d.src.bytes)))
			d.report(problem(n.rng, "Wrong type", "%s takes strings, not %s. Write %s.", f.key, n.kind, quote(w)))
		case broken:
		default:
			d.report(problem(n.rng, "Wrong type", "%s takes strings, not %s. Write %s.", f.key, n.kind, d.example(f.key)))
		}
	}
	return good
}

// table reads a section or a map.
func (d *decoder) table(f *field) (*node, bool) {
	if f.val.kind == table {
		return f.val, true
	}
	if f.key == "auth" || f.key == "env" {
		d.hidden.all(f.val)
	}
	if f.val.kind != broken {
		d.report(problem(f.val.rng, "Wrong type", "%s is a section, not %s. Write %s.", f.key, f.val.kind, d.form(f.key)))
	}
	return nil, false
}

// integer reads a whole number in plain decimal: 0755 and 0x10 mean different things to different readers.
func (d *decoder) integer(f *field, least, most int64) (int64, bool) {
	if f.val.kind != number {
		if _, err := strconv.ParseUint(f.val.text, 10, 16); err == nil {
			d.report(problem(f.val.rng, "Wrong type", "%s takes a number without quotes. Write %s = %s.", f.key, f.key, f.val.text))
			return 0, false
		}
		d.wrongType(f, f.val, "a number without quotes")
		return 0, false
	}
	s := f.val.text
	digits := strings.TrimPrefix(s, "-")
	plain := digits != "" && strings.Trim(digits, "0123456789") == "" && (digits == "0" || digits[0] != '0')
	v, err := strconv.ParseInt(s, 10, 64)
	switch {
	case !plain:
		d.report(problem(f.val.rng, "Not a plain number", "%s takes a whole number in decimal, without a leading zero, sign or exponent. Write %s.", f.key, d.example(f.key)))
	case err != nil || v < least || v > most:
		d.outOfRange(f.val.rng, f.key, strconv.FormatInt(least, 10), strconv.FormatInt(most, 10))
	default:
		return v, true
	}
	return 0, false
}

func (d *decoder) outOfRange(at hcl.Range, name, least, most string) {
	d.report(problem(at, "Out of range", "%s lies between %s and %s. Write %s.", name, least, most, d.example(name)))
}

// duration reads Go's notation.
func (d *decoder) duration(f *field, least, most time.Duration, never bool) (time.Duration, bool) {
	if f.val.kind == number {
		d.report(problem(f.val.rng, "Wrong type", "%s takes a duration with its unit, in quotes. Write %s.", f.key, d.example(f.key)))
		return 0, false
	}
	s, ok := d.text(f)
	if !ok {
		return 0, false
	}
	v, err := time.ParseDuration(s)
	if never && err == nil && v == 0 {
		return 0, true
	}
	switch {
	case err != nil:
		d.report(problem(f.val.rng, "Not a duration", `%s is no duration: a number with ms, s, m or h, from %s to %s. Write %s.`, quote(s), quote(Short(least)), quote(Short(most)), d.example(f.key)))
	case v < least || v > most:
		d.outOfRange(f.val.rng, f.key, quote(Short(least)), quote(Short(most)))
	default:
		return v, true
	}
	return 0, false
}

// Short writes a duration as a declaration does: without the zeros of time.Duration.String.
func Short(v time.Duration) string {
	s := v.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// enum reads one of a few words.
func (d *decoder) enum(f *field, words []string, others map[string]string) (string, bool) {
	s, ok := d.text(f)
	if !ok {
		return "", false
	}
	if slices.Contains(words, s) {
		return s, true
	}
	best := others[strings.ToLower(s)]
	if best == "" {
		best = nearest.Keyword(strings.ToLower(s), words)
	}
	hint := "Write one of them."
	if best != "" {
		hint = "Write " + f.key + " = " + strconv.Quote(best) + "."
	}
	quoted := make([]string, 0, len(words))
	for _, w := range words {
		quoted = append(quoted, strconv.Quote(w))
	}
	d.report(problem(f.val.rng, "Unknown "+f.key, "%s is none of %s. %s", quoteName(s), oneOf(quoted), hint))
	return "", false
}
