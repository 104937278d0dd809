package catalog

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
)

var (
	serviceName = block.MustBound(23, `^[a-z][a-z0-9-]*$`)
	variable    = block.MustBound(128, `^[A-Za-z_][A-Za-z0-9_]*$`)
	integrity   = block.MustBound(128, `^sha512-[A-Za-z0-9+/]{86}==$`)
	size        = block.MustBound(8, `^[1-9][0-9]*[mg]$`)
	reference   = regexp.MustCompile(`\{([^}]*)\}`)
)

// found is a service and where it stands.
type found struct {
	Service
	at hcl.Range
}

// entry reads the setup of one service.
type entry struct {
	*block.Reader
	Service
}

// read reads the services of a file. Shipped files also have facts, which package policies reads.
func (s *Set) read(name string, b []byte, shipped bool) (list []found) {
	r, root := policies.Open(name, b)
	if root != nil {
		r.Section(block.Section{Many: true, Keys: []block.Key{{Name: "service", Example: `service "notion" { ... }`,
			Value: func(f *block.Field) {
				e := &entry{r, Service{File: name, Label: declaration.Sensitive}}
				if before := len(r.Diags); e.service(f, shipped) && len(r.Diags) == before {
					list = append(list, found{e.Service, f.At})
				}
			}}}}, root)
	}
	s.Diags = append(s.Diags, r.Finish()...)
	return list
}

// service reads the block of a service, and reports whether it has a setup.
func (e *entry) service(f *block.Field, shipped bool) bool {
	if !e.labelled(f, serviceName, "a name of at most 23 letters, digits and dashes") {
		return false
	}
	if e.Name = f.Labels[0].Text; e.Name == access.Own {
		e.Problem(f.Labels[0].At, "Invalid name",
			"%s is the name of pfar's own tools (pfar__connect). Write service \"my-service\" { ... }.",
			block.Quote(e.Name))
		return false
	}
	keys := []block.Key{{Name: "setup", Example: `setup { package = "npm:@example/mcp@1.2.3" }`, Value: e.setup}}
	for _, name := range policies.FactKeys() {
		if name != "setup" {
			keys = append(keys, block.Key{Name: name, Value: func(f *block.Field) {
				if !shipped {
					e.Problem(f.At, "Facts in services.d",
						"%s is a fact for the gate. Write it into a file of policies.d, in service %q { ... }.",
						f.Key, e.Name)
				}
			}})
		}
	}
	e.Section(block.Section{Name: "service", Many: true, Keys: keys}, f.Val)
	if f.Val.Index["setup"] == nil && !shipped {
		e.Problem(f.At, "Missing setup",
			`%q does not say how it is set up. Write setup { package = "npm:@example/mcp@1.2.3" } in it.`, e.Name)
	}
	return f.Val.Index["setup"] != nil
}

// labelled checks that a block has one name after its word.
func (e *entry) labelled(f *block.Field, form block.Bounded, want string) bool {
	switch {
	case f.Val.Kind == block.Broken:
		return false
	case f.Val.Kind != block.Table || len(f.Labels) != 1:
		e.Problem(f.At, "Wrong labels", "%s is a block with one name after it. Write %s.", f.Key, f.Example)
		return false
	case !form.MatchString(f.Labels[0].Text):
		e.Problem(f.Labels[0].At, "Invalid name", "%s is not %s. Write %s.", block.QuoteName(f.Labels[0].Text),
			want, f.Example)
		return false
	}
	return true
}

// table reads a block without a name by its keys.
func (e *entry) table(f *block.Field, keys []block.Key) bool {
	if f.Val.Kind != block.Table || len(f.Labels) != 0 {
		e.Problem(f.At, "Wrong type", "%s is a block without a name. Write %s.", f.Key, f.Example)
		return false
	}
	e.Section(block.Section{Name: f.Key, Many: true, Keys: keys}, f.Val)
	return true
}

func (e *entry) setup(f *block.Field) {
	if !e.table(f, []block.Key{
		{Name: "title", Example: `"Notion"`, Value: e.SetLine(&e.Title)},
		{Name: "summary", Example: `"Pages, databases and blocks"`, Value: e.SetLine(&e.Summary)},
		{Name: "package", Example: `"npm:@example/mcp@1.2.3"`, Value: e.pkg},
		{Name: "integrity", Example: `"sha512-..."`, Value: e.form(&e.Program.Integrity, integrity,
			"what the registry has in dist.integrity")},
		{Name: "bin", Example: `"example-mcp"`, Value: e.SetLine(&e.Program.Bin)},
		{Name: "command", Example: `"/usr/local/bin/example-mcp"`, Value: e.SetLine(&e.Program.Command)},
		{Name: "args", Example: `["stdio"]`, Value: e.lines(&e.Program.Args)},
		{Name: "env", Example: `{ TELEMETRY = "off" }`, Value: e.env},
		{Name: "state", Example: `true`, Value: e.SetTruth(&e.Program.State)},
		{Name: "memory", Example: `"1g"`, Value: e.form(&e.Program.Memory, size, "a number with m or g")},
		{Name: "domains", Example: `["api.example.com"]`, Value: e.lines(&e.Domains)},
		{Name: "label", Example: `"internal"`, Value: e.label},
		{Name: "secret", Example: `secret "EXAMPLE_TOKEN" { key = "example_token" }`, Value: e.secret},
		{Name: "parameter", Example: `parameter "team" { question = "Which team?" }`, Value: e.parameter},
		{Name: "device", Example: `device { url = "https://...", token = "https://..." }`,
			Value: e.signIn(&e.Device)},
		{Name: "code", Example: `code { url = "https://...", token = "https://..." }`, Value: e.signIn(&e.Code)},
		{Name: "test", Example: `test "get_me" { arguments = {} }`, Value: e.test},
		{Name: "remote", Example: `remote { url = "https://mcp.example.com/mcp" }`, Value: e.remote},
		{Name: "gone", Example: `"The package is archived."`, Value: e.SetLine(&e.Program.Gone)},
	}) {
		return
	}
	e.whole(f)
}

// whole checks what the keys say together.
func (e *entry) whole(f *block.Field) {
	for name, value := range map[string]string{"title": e.Title, "summary": e.Summary} {
		if f.Val.Index[name] == nil && value == "" {
			e.Problem(f.At, "Missing "+name, "setup needs a %s, which people are shown. Write %s = \"...\".", name,
				name)
		}
	}
	programs := 0
	for _, name := range []string{"package", "command", "gone"} {
		if f.Val.Index[name] != nil {
			programs++
		}
	}
	if programs > 1 || programs == 0 && e.Remote.URL == "" {
		e.Problem(f.At, "Not one program",
			"setup has one of package, command and gone, or remote alone. Keep one of them, or write package = "+
				"\"npm:@example/mcp@1.2.3\".")
	}
	for _, d := range e.Domains {
		if plain := reference.ReplaceAllString(d, "example.com"); !valid(plain) {
			e.Problem(f.Val.Index["domains"].Val.At, "Invalid domain",
				"%s is not a host. Write domains = [\"api.example.com\"].", block.Quote(d))
		}
	}
	e.hosts(f)
	e.references(f)
	e.checkRemote(f)
}

// hosts sets the hosts of brokered secrets: those of the entry, or the only domain of the service.
func (e *entry) hosts(f *block.Field) {
	for i := range e.Secrets {
		s := &e.Secrets[i]
		if len(s.Hosts) == 0 && len(e.Domains) == 1 && s.Deliver == broker.OnWire {
			s.Hosts = e.Domains
		}
		stray := slices.ContainsFunc(s.Hosts, func(h string) bool { return !slices.Contains(e.Domains, h) })
		if s.Deliver == broker.OnWire && len(s.Hosts) == 0 || stray {
			e.Problem(f.At, "Missing hosts",
				"The bridge puts %s into requests to hosts of domains. Write hosts = [\"api.example.com\"] in it, with "+
					"hosts of those.",
				s.Env)
		}
	}
}

func valid(domain string) bool { _, err := egress.ParseEndpoint(domain); return err == nil }

// references checks that each {NAME} is a parameter, and that each parameter goes somewhere.
func (e *entry) references(f *block.Field) {
	used := map[string]bool{}
	texts := slices.Concat(e.Program.Args, e.Domains)
	for _, v := range e.Program.Env {
		texts = append(texts, v)
	}
	for _, t := range texts {
		for _, m := range reference.FindAllStringSubmatch(t, -1) {
			used[m[1]] = true
			if !slices.ContainsFunc(e.Parameters, func(p Parameter) bool { return p.Name == m[1] }) {
				e.Problem(f.At, "Unknown parameter",
					"%s is not a parameter. Write parameter %s { question = \"...\" }, or remove it.",
					block.Quote(m[0]), block.Quote(m[1]))
			}
		}
	}
	for _, p := range e.Parameters {
		if p.Env == "" && !used[p.Name] {
			e.Problem(f.At, "Unused parameter",
				"The answer to %s goes nowhere. Write env = \"NAME\" in it, or {%s} into args, env or domains.",
				block.Quote(p.Name), p.Name)
		}
	}
}

// form returns the Value of a key that takes a text of one form.
func (e *entry) form(to *string, form block.Bounded, want string) block.Value {
	return func(f *block.Field) {
		s, ok := e.Line(f)
		if ok && !form.MatchString(s) {
			e.Problem(f.Val.At, "Invalid "+f.Key, "%s is not %s. Write %s.", block.Quote(s), want, f.Example)
			return
		}
		*to = s
	}
}

// pkg reads a package with its exact version.
func (e *entry) pkg(f *block.Field) {
	s, ok := e.Line(f)
	if !ok {
		return
	}
	if _, err := source.ParseExact(s); err != nil {
		e.Problem(f.Val.At, "Invalid "+f.Key,
			"It is not a package with its exact version: %v. Write %s.", err, f.Example)
	}
	e.Program.Package = s
}

func (e *entry) url(to *string) block.Value {
	return e.form(to, block.MustBound(512, `^https://[a-zA-Z0-9.-]+(:[0-9]+)?(/[^\s"<>]*)?$`),
		"an address that begins with https://")
}

func (e *entry) lines(to *[]string) block.Value {
	return func(f *block.Field) {
		for _, n := range e.Texts(f) {
			*to = append(*to, n.Text)
		}
	}
}

func (e *entry) env(f *block.Field) {
	if f.Val.Kind != block.Table || len(f.Labels) > 0 {
		e.WrongType(f, f.Val, "variables and their values")
		return
	}
	e.Program.Env = map[string]string{}
	for _, v := range f.Val.Fields {
		if v.Val.Kind != block.Text || !variable.MatchString(v.Key) {
			e.Problem(v.At, "Invalid variable", "%s is not a variable with a string. Write %s.",
				block.QuoteName(v.Key), f.Example)
			continue
		}
		e.Program.Env[v.Key] = v.Val.Text
	}
}

func (e *entry) label(f *block.Field) {
	words := []string{"public", "internal", "sensitive", "regulated", "secret"}
	if s, ok := e.Line(f); ok && e.Among(f, s, words, nil) {
		e.Label = declaration.Label(s)
	}
}

func (e *entry) secret(f *block.Field) {
	if !e.labelled(f, variable, "the name of a variable") {
		return
	}
	s := Secret{Env: f.Labels[0].Text}
	said := false
	words := map[string]broker.Delivery{"env": broker.InEnvironment, "file": broker.InFile, "broker": broker.OnWire}
	e.Section(block.Section{Name: f.Key, Many: true, Keys: []block.Key{
		{Name: "key", Example: `"example_token"`, Value: e.SetLine(&s.Key)},
		{Name: "prefixes", Example: `["ntn_"]`, Value: e.lines(&s.Prefixes)},
		{Name: "pattern", Example: `"ntn_[A-Za-z0-9]{46}"`, Value: e.pattern(&s.Pattern)},
		{Name: "where", Example: `"Create an integration and copy its secret."`, Value: e.SetLine(&s.Where)},
		{Name: "url", Example: `"https://example.com/tokens"`, Value: e.url(&s.URL)},
		{Name: "scopes", Example: `["read"]`, Value: e.lines(&s.Scopes)},
		{Name: "deliver", Example: `"broker"`, Value: func(f *block.Field) {
			if w, ok := e.Line(f); ok && e.Among(f, w, slices.Sorted(maps.Keys(words)), nil) {
				s.Deliver, said = words[w], true
			}
		}},
		{Name: "hosts", Example: `["api.example.com"]`, Value: e.lines(&s.Hosts)},
		{Name: "in", Example: `["header:authorization"]`, Value: e.places(&s.In)},
		{Name: "optional", Example: `true`, Value: e.SetTruth(&s.Optional)},
	}}, f.Val)
	slices.SortFunc(s.Prefixes, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	switch {
	case !declaration.IsVaultKey(s.Key):
		e.Problem(f.At, "Invalid key",
			"A vault key has only a to z, 0 to 9, _ and -. Write key = \"example_token\" in it.")
	case s.Where == "":
		e.Problem(f.At, "Missing where", "A secret says how a person gets it. Write where = \"...\" in it.")
	case !said:
		e.Problem(f.At, "Missing deliver",
			"A secret says whether the server has it. Write deliver = \"broker\", or \"env\" where the server must "+
				"have the value.")
	case len(s.In)+len(s.Hosts) > 0 && s.Deliver != broker.OnWire:
		e.Problem(f.At, "Keys that exclude each other",
			"in and hosts say where the bridge puts a secret. Write deliver = \"broker\", or remove them.")
	}
	if s.Deliver == broker.OnWire && len(s.In) == 0 {
		s.In = broker.Standard()
	}
	e.Secrets = append(e.Secrets, s)
}

func (e *entry) pattern(to *string) block.Value {
	return func(f *block.Field) {
		s, ok := e.Line(f)
		if !ok {
			return
		}
		if _, err := regexp.Compile(s); err != nil || len(s) > 256 {
			e.Problem(f.Val.At, "Invalid pattern",
				"The pattern is not a regular expression of at most 256 bytes. Write %s.", f.Example)
			return
		}
		*to = s
	}
}

func (e *entry) places(to *[]broker.Place) block.Value {
	return func(f *block.Field) {
		for _, n := range e.Texts(f) {
			p, err := broker.ParsePlace(n.Text)
			if err != nil {
				e.Problem(n.At, "Invalid place", "%v.", err)
				continue
			}
			*to = append(*to, p)
		}
	}
}

func (e *entry) parameter(f *block.Field) {
	if !e.labelled(f, variable, "a name of letters, digits and _") {
		return
	}
	p := Parameter{Name: f.Labels[0].Text}
	e.Section(block.Section{Name: f.Key, Many: true, Keys: []block.Key{
		{Name: "question", Example: `"Which team?"`, Value: e.SetLine(&p.Question)},
		{Name: "env", Example: `"EXAMPLE_TEAM"`, Value: e.form(&p.Env, variable, "the name of a variable")},
		{Name: "example", Example: `"T01234567"`, Value: e.SetLine(&p.Example)},
		{Name: "access", Example: `"read"`, Value: e.access(&p.Access)},
		{Name: "optional", Example: `true`, Value: e.SetTruth(&p.Optional)},
	}}, f.Val)
	if p.Question == "" {
		e.Problem(f.At, "Missing question", "A parameter is asked for. Write question = \"...\" in it.")
	}
	e.Parameters = append(e.Parameters, p)
}

func (e *entry) access(to *string) block.Value {
	return func(f *block.Field) {
		if s, ok := e.Line(f); ok && e.Among(f, s, []string{"read", "write"}, nil) {
			*to = s
		}
	}
}

// ReadSignIn returns the Value of a key that takes the endpoints of a way to get a token.
func ReadSignIn(r *block.Reader, to **SignIn) block.Value { return (&entry{Reader: r}).signIn(to) }

func (e *entry) signIn(to **SignIn) block.Value {
	return func(f *block.Field) {
		s := &SignIn{}
		if e.table(f, []block.Key{
			{Name: "url", Example: `"https://example.com/oauth/authorize"`, Value: e.url(&s.URL)},
			{Name: "token", Example: `"https://example.com/oauth/token"`, Value: e.url(&s.Token)},
			{Name: "scopes", Example: `["read"]`, Value: e.lines(&s.Scopes)},
			{Name: "register", Example: `"https://example.com/settings/apps"`, Value: e.url(&s.Register)},
		}) && (s.URL == "" || s.Token == "") {
			e.Problem(f.At, "Missing endpoint", "A sign-in has two endpoints. Write %s.", f.Example)
		}
		*to = s
	}
}

func (e *entry) test(f *block.Field) {
	if !e.labelled(f, block.MustBound(128, `^[A-Za-z0-9_./-]+$`), "the name of a tool") {
		return
	}
	e.Test = &Test{Tool: f.Labels[0].Text, Arguments: json.RawMessage("{}")}
	e.Section(block.Section{Name: f.Key, Many: true, Keys: []block.Key{
		{Name: "arguments", Example: `{ limit = 1 }`, Value: func(f *block.Field) {
			v, ok := plain(f.Val)
			if f.Val.Kind != block.Table || !ok {
				e.WrongType(f, f.Val, "an object of plain values")
				return
			}
			e.Test.Arguments, _ = json.Marshal(v) // of plain values
		}},
		{Name: "answer", Example: `"\"ok\": *true"`, Value: e.pattern(&e.Test.Answer)},
	}}, f.Val)
}

// plain is a value as JSON has it.
func plain(n *block.Node) (any, bool) {
	switch n.Kind {
	case block.Text:
		return n.Text, true
	case block.Number:
		return json.Number(n.Text), json.Valid([]byte(n.Text))
	case block.Boolean:
		return n.Truth, true
	case block.List:
		list := []any{}
		for _, i := range n.Items {
			v, ok := plain(i)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		return list, true
	case block.Table:
		object := map[string]any{}
		for _, f := range n.Fields {
			v, ok := plain(f.Val)
			if !ok {
				return nil, false
			}
			object[f.Key] = v
		}
		return object, true
	}
	return nil, false
}
