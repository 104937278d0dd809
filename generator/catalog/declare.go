package catalog

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/nearest"
	"github.com/pfar/pfar/policies/visible"
)

const (
	maxAnswer = 4096
	column    = 78 // longer lists take several lines, for terminals with 80 columns
)

// Choices are what a person decides about a server of a service. The zero value takes what the entry says.
type Choices struct {
	Server  string            // its name; "": that of the service
	Answers map[string]string // to the parameters, by name
	Omitted []string          // variables of optional secrets that the server does without
	Package string            // the entry's package in another exact version; "": the entry's
	Keys    map[string]string // names in the vault, by variable, in place of the entry's
	Origin  string            // where the declaration is from, for its comment; "": the entry
	Learns  bool              // more hosts may be added later: each secret names its hosts
}

// Declaration writes the declaration of a server, as short as a person would: it leaves out defaults. Its errors say
// what to choose instead. declaration.Parse reads the text without a mistake.
func (s Service) Declaration(c Choices) ([]byte, error) {
	c.Server = cmp.Or(c.Server, s.Name)
	if s.OnlyElsewhere() && s.Program.Gone == "" {
		s = s.Elsewhere()
	}
	d := draft{Service: s, Choices: c}
	for _, check := range []func() error{d.named, d.program, d.answered, d.held} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	text := d.text()
	if read, diags := declaration.Parse(c.Server+".hcl", text, declaration.Options{}); read == nil {
		return nil, fmt.Errorf("the declaration of %q would be wrong: %w", c.Server, diags)
	}
	return text, nil
}

// draft is a declaration while it is written.
type draft struct {
	Service
	Choices
	missing []string // {NAME} of parameters without an answer
	fill    *strings.Replacer
}

// named checks the server's name.
func (d *draft) named() error {
	if !declaration.ValidName(d.Server) {
		return fmt.Errorf("%q cannot be the name of a server: use 1 to %d of a to z, 0 to 9 and single dashes, a letter "+
			"first", d.Server, declaration.MaxName)
	}
	return nil
}

// program checks that there is something to run, and puts the chosen version in.
func (d *draft) program() error {
	switch {
	case d.Program.Gone != "":
		return fmt.Errorf("%s cannot be set up: %s", d.Title, strings.TrimSuffix(d.Program.Gone, "."))
	case d.Package == "":
		d.Package = d.Program.Package
		return nil
	}
	chosen, err := source.ParseExact(d.Package)
	if err != nil {
		return err
	}
	if ours, err := source.Parse(d.Program.Package); err != nil || ours.Key() != chosen.Key() {
		return fmt.Errorf("%q is not the package of %s; write another version of %s", d.Package, d.Title,
			d.Program.Package+d.Program.Command)
	}
	return nil
}

// answered checks the answers to the parameters.
func (d *draft) answered() error {
	var names, pairs []string
	for _, p := range d.Parameters {
		names = append(names, p.Name)
		answer := d.Answers[p.Name]
		if answer == "" && p.Optional {
			d.missing = append(d.missing, "{"+p.Name+"}")
			continue
		}
		if err := d.CheckAnswer(p, answer); err != nil {
			return err
		}
		pairs = append(pairs, "{"+p.Name+"}", answer)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Answers)) {
		switch near := cmp.Or(nearest.Name(name, names), "one of "+strings.Join(names, ", ")); {
		case slices.Contains(names, name):
		case len(names) == 0:
			return fmt.Errorf("%s asks for nothing; leave %q out", d.Title, name)
		default:
			return fmt.Errorf("%s does not ask for %q; write %s", d.Title, name, near)
		}
	}
	d.fill = strings.NewReplacer(pairs...)
	return nil
}

// CheckAnswer says what is wrong with the answer to one parameter. No message repeats what may be a secret.
func (s Service) CheckAnswer(p Parameter, answer string) error {
	example := ""
	if p.Example != "" {
		example = fmt.Sprintf(", for example %q", p.Example)
	}
	switch {
	case answer == "":
		return fmt.Errorf("%s is missing: %s Give an answer%s", p.Name, p.Question, example)
	case len(answer) > maxAnswer:
		return fmt.Errorf("the answer to %s has %d bytes, and room for %d", p.Name, len(answer), maxAnswer)
	case block.PasswordWithin(answer), block.SecretWithin(answer):
		return fmt.Errorf("the answer to %s looks like a secret, which no declaration may hold; give it without%s", p.Name,
			example)
	case strings.ContainsFunc(answer, visible.Deceptive):
		return fmt.Errorf("the answer to %s, %q, holds a character that cannot be seen; write it without%s", p.Name, answer,
			example)
	case strings.HasPrefix(answer, "-"):
		return fmt.Errorf("the answer to %s, %q, would be read as an option; write it without the dash%s", p.Name, answer,
			example)
	case p.Access != "" && (!path.IsAbs(answer) || path.Clean(answer) != answer):
		const format = "the answer to %s, %q, is not a full path; " +
			"begin with a slash, without .. or a slash at the end%s"
		return fmt.Errorf(format, p.Name, answer, example)
	}
	for _, host := range s.Domains {
		if !strings.Contains(host, "{"+p.Name+"}") {
			continue
		}
		if _, err := egress.ParseEndpoint(strings.ReplaceAll(host, "{"+p.Name+"}", answer)); err != nil {
			const format = "the answer to %s, %q, gives no valid host: %w; write another%s"
			return fmt.Errorf(format, p.Name, answer, err, example)
		}
	}
	return nil
}

// held checks which secrets are left out, and how the others are called in the vault.
func (d *draft) held() error {
	for _, name := range d.Omitted {
		i := slices.IndexFunc(d.Secrets, func(k Secret) bool { return k.Env == name })
		switch {
		case i < 0:
			return fmt.Errorf("%s has no secret %q to leave out", d.Title, name)
		case !d.Secrets[i].Optional:
			return fmt.Errorf("%s does not run without %s", d.Title, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Keys)) {
		switch key := d.Keys[name]; {
		case !slices.ContainsFunc(d.Secrets, func(k Secret) bool { return k.Env == name }):
			return fmt.Errorf("%s has no secret in %q", d.Title, name)
		case !declaration.IsVaultKey(key):
			return fmt.Errorf("the secret in %s cannot be called %s in the vault; use a to z, 0 to 9, _ and -", name,
				block.QuoteName(key))
		}
	}
	return nil
}

// text writes the declaration in the order of the examples.
func (d *draft) text() []byte {
	var b bytes.Buffer
	origin := d.Origin
	if origin == "" {
		origin = fmt.Sprintf("From pfar's entry of %s: pfar services %s", d.Title, d.Name)
	}
	fmt.Fprintf(&b, "# %s\n", strings.Join(strings.Fields(visible.Escape(origin, visible.Deceptive)), " "))
	line := func(key, value string) { fmt.Fprintf(&b, "%s = %s\n", key, value) }
	if d.Summary != "" {
		line("description", declaration.Text(d.Title+": "+d.Summary))
	}
	if d.Label != declaration.Sensitive {
		line("label", declaration.Text(string(d.Label)))
	}
	unsaid := d.Package == "" && d.Origin == "" || d.Program.elsewhere() && !d.Learns // nothing else names the service
	if d.Name != "" && (d.Server != d.Name || unsaid) {
		line("service", declaration.Text(d.Name))
	}
	if hosts := d.filled(d.Domains); len(hosts) > 0 && !d.Program.elsewhere() {
		line("allowed_domains", list("allowed_domains", hosts))
	}
	section(&b, "server {", d.serverLines())
	section(&b, "sandbox {", d.sandboxLines())
	section(&b, "auth = {", d.authLines())
	section(&b, "env = {", d.envLines())
	return hclwrite.Format(b.Bytes())
}

// section writes a block with its lines, or nothing. A single line goes between its braces if it fits.
func section(b *bytes.Buffer, open string, lines []string) {
	switch one := strings.Join(lines, ""); {
	case len(lines) == 0:
	case len(lines) == 1 && !strings.Contains(one, "\n") && len(open+one) < column-4:
		fmt.Fprintf(b, "\n%s %s }\n", open, one)
	default:
		fmt.Fprintf(b, "\n%s\n%s\n}\n", open, strings.Join(lines, "\n"))
	}
}

// elsewhere reports whether pfar does not start the server.
func (p Program) elsewhere() bool { return p.URL != "" || p.Path != "" && p.Package+p.Command == "" }

func (d *draft) serverLines() (lines []string) {
	if d.Program.Path != "" {
		lines = append(lines, "transport = "+declaration.Text(string(d.Program.Transport)),
			"path = "+declaration.Text(d.Program.Path))
	}
	switch {
	case d.Program.URL != "":
		transport := cmp.Or(d.Program.Transport, declaration.StreamHTTP)
		lines = append(lines, "transport = "+declaration.Text(string(transport)),
			"url = "+declaration.Text(d.Program.URL))
	case d.Program.elsewhere():
	case d.Package == "":
		lines = append(lines, "command = "+declaration.Text(d.Program.Command))
	case d.Program.Bin != "":
		lines = append(lines, "package = "+declaration.Text(d.Package), "command = "+declaration.Text(d.Program.Bin))
	default:
		lines = append(lines, "package = "+declaration.Text(d.Package))
	}
	if args := d.filled(d.Program.Args); len(args) > 0 {
		lines = append(lines, "args = "+list("args", args))
	}
	return lines
}

func (d *draft) sandboxLines() (lines []string) {
	if d.Program.Memory != "" {
		lines = append(lines, "memory_limit = "+declaration.Text(d.Program.Memory))
	}
	for _, k := range []struct{ access, key string }{{"read", "read_only"}, {"write", "writable"}} {
		var paths []string
		for _, p := range d.Parameters {
			if answer := d.Answers[p.Name]; p.Access == k.access && answer != "" && !slices.Contains(paths, answer) {
				paths = append(paths, answer)
			}
		}
		if len(paths) > 0 {
			lines = append(lines, k.key+" = "+list(k.key, paths))
		}
	}
	if d.Program.State {
		lines = append(lines, "state = true")
	}
	return lines
}

func (d *draft) authLines() (lines []string) {
	for _, k := range d.Secrets {
		if !slices.Contains(d.Omitted, k.Env) {
			lines = append(lines, k.Env+" = "+d.delivered(k))
		}
		if k.Login && len(k.Scopes) > 0 {
			lines = append(lines, "scopes = "+list("scopes", k.Scopes))
		}
	}
	return lines
}

// delivered is the value of a secret's variable in auth.
func (d *draft) delivered(k Secret) string {
	secret := declaration.Text("vault:" + cmp.Or(d.Keys[k.Env], k.Key))
	words := []string{"secret = " + secret}
	switch {
	case k.Deliver == broker.InEnvironment, d.Program.elsewhere() && slices.Equal(k.In, broker.Standard()):
		return secret
	case d.Program.elsewhere():
		words = append(words, "in = "+list("in", []string{k.In[0].String()}))
	default:
		words = append(words, "deliver = "+declaration.Text(string(k.Deliver)))
	}
	if k.Deliver == broker.OnWire && !d.Program.elsewhere() {
		var in []string
		for _, p := range k.In {
			in = append(in, p.String())
		}
		if !slices.Equal(k.In, broker.Standard()) {
			words = append(words, "in = "+list("in", in))
		}
		if !slices.Equal(k.Hosts, d.Domains) || len(k.Hosts) > 1 || d.Learns {
			words = append(words, "hosts = "+list("hosts", d.filled(k.Hosts)))
		}
	}
	one := strings.Join(words, ", ")
	if len(k.Env)+len(one)+len("   = {  }") <= column && !strings.Contains(one, "\n") {
		return "{ " + one + " }"
	}
	return "{\n" + strings.Join(words, "\n") + "\n}"
}

func (d *draft) envLines() (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(d.Program.Env)) {
		if v, ok := d.filledWord(d.Program.Env[name]); ok {
			lines = append(lines, name+" = "+declaration.Text(v))
		}
	}
	for _, p := range d.Parameters {
		if answer := d.Answers[p.Name]; p.Env != "" && answer != "" {
			lines = append(lines, p.Env+" = "+declaration.Text(answer))
		}
	}
	return lines
}

// Answered returns the service as it is shown once some questions have answers: with those in place of {NAME} among its
// hosts, and without the questions. Folders stay: what the server may do there is to be shown.
func (s Service) Answered(answers map[string]string) Service {
	var pairs []string
	open := func(p Parameter) bool { return answers[p.Name] == "" || p.Access != "" }
	for _, p := range s.Parameters {
		if !open(p) {
			pairs = append(pairs, "{"+p.Name+"}", answers[p.Name])
		}
	}
	s.Parameters = slices.DeleteFunc(slices.Clone(s.Parameters), func(p Parameter) bool { return !open(p) })
	s.Domains = slices.Clone(s.Domains)
	for i, host := range s.Domains {
		s.Domains[i] = strings.NewReplacer(pairs...).Replace(host)
	}
	return s
}

// filledWord puts the answers into a word. It reports false if one of them was not given.
func (d *draft) filledWord(w string) (string, bool) {
	lacks := slices.ContainsFunc(d.missing, func(m string) bool { return strings.Contains(w, m) })
	return d.fill.Replace(w), !lacks
}

// filled puts the answers into words. It leaves out those whose answer was not given.
func (d *draft) filled(words []string) (list []string) {
	for _, w := range words {
		if v, ok := d.filledWord(w); ok {
			list = append(list, v)
		}
	}
	return list
}

// list writes words as a list of HCL: on one line if they fit, else one word a line.
func list(key string, words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = declaration.Text(w)
	}
	if one := strings.Join(quoted, ", "); len(key)+len(one)+len("   = []") <= column {
		return "[" + one + "]"
	}
	return "[\n" + strings.Join(quoted, ",\n") + ",\n]"
}
