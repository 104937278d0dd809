package main

import (
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
)

// proposal is a server that the words of a command line ask for.
type proposal struct {
	service catalog.Service
	choices catalog.Choices
	known   bool     // the catalogue has it; else nobody knows which hosts it needs
	remarks []string // for the person who asks
}

// propose returns the server that words name. command reports that the words are a command line after "--".
func propose(known catalog.Set, words []string, command bool) (proposal, error) {
	if command {
		return ofCommand(known, words)
	}
	word := words[0]
	kind, _, _ := strings.Cut(word, ":")
	switch s, found := known.Find(word); {
	case found && s.OnlyElsewhere():
		return ofVendor(s), nil
	case found:
		return proposal{service: s, known: true}, nil
	case strings.Contains(word, "://"):
		return ofURL(known, word)
	case kind == string(source.NPM) || kind == string(source.PyPI):
		p, err := source.Parse(word)
		if err != nil {
			return proposal{}, usage("%w", err)
		}
		return ofPackage(known, p, nil)
	}
	return proposal{}, notKnown(known, word)
}

// notKnown says what to write for a word that names nothing.
func notKnown(known catalog.Set, word string) error {
	f := fail(exitNoSuch, "no known service is called %q", word)
	var names []string
	for _, s := range known.All() {
		names = append(names, s.Name)
	}
	near := nearestName(word, names)
	switch {
	case near != "":
		return f.withHint("did you mean %q?", near)
	case strings.ContainsAny(word, "/@"):
		return f.withHint("for a package: pfar add npm:%s@VERSION", strings.TrimSuffix(word, "@latest"))
	case len(known.Search(word)) > 0:
		return f.withHint("pfar services %s", word)
	}
	return f.withHint("pfar services lists them; for a package: pfar add npm:%s@VERSION", word)
}

// ofPackage proposes the service that has a package or, if none has, the package alone.
func ofPackage(known catalog.Set, p source.Package, args []string) (proposal, error) {
	for _, s := range known.All() {
		entry, err := source.Parse(s.Program.Package)
		if err != nil || entry.Key() != p.Key() {
			continue
		}
		answers, ok := argumentsOf(s, args)
		if !ok {
			return proposal{}, usage("pfar cannot add %s with these arguments", p.Key()).
				withHint("pfar add %s asks for what it needs", s.Name)
		}
		found := proposal{service: s, known: true, choices: catalog.Choices{Answers: answers}}
		if p.Version != "" && p.Version != entry.Version {
			found.choices.Package = source.Package{Kind: p.Kind, Name: p.Name, Version: p.Version}.String()
		}
		return found, nil
	}
	named := source.Package{Kind: p.Kind, Name: p.Name, Version: p.Version}.String()
	return stranger(nameOfPackage(p), named, catalog.Program{Package: named, Bin: p.Bin, Args: args})
}

// argumentsOf compares arguments with those of a service's entry, and returns the answers that stand in the places of
// {NAME}. Without arguments it returns no answers.
func argumentsOf(s catalog.Service, args []string) (answers map[string]string, ok bool) {
	answers = map[string]string{}
	if len(args) == 0 {
		return answers, true
	}
	if len(args) != len(s.Program.Args) {
		return nil, false
	}
	for i, word := range s.Program.Args {
		name, is := strings.CutPrefix(strings.TrimSuffix(word, "}"), "{")
		switch {
		case is && strings.HasSuffix(word, "}"):
			answers[name] = args[i]
		case word != args[i]:
			return nil, false
		}
	}
	return answers, true
}

// stranger proposes a program of which nothing is known.
func stranger(name, title string, p catalog.Program) (proposal, error) {
	for _, a := range p.Args {
		if block.SecretWithin(a) || block.PasswordWithin(a) {
			return proposal{}, usage("an argument looks like a secret, which no declaration may hold").
				withHint("leave it out, and name it in auth afterwards: man pfar-declaration")
		}
	}
	return proposal{
		service: catalog.Service{Name: name, Title: title, Label: declaration.Sensitive, Program: p},
		choices: catalog.Choices{Origin: "From pfar add: " + title, Learns: true},
		remarks: []string{
			"pfar does not know this server. At first the server reaches no other host. pfar notes for a while which " +
				"hosts the server tries to reach, and then asks you which of them to allow.",
		},
	}, nil
}

// need adds the secrets of a server that pfar does not know, each as VARIABLE or VARIABLE@HOST. A secret with a host
// goes only there, and the server has a placeholder.
func (p *proposal) need(known catalog.Set, variables []string) error {
	if len(variables) > 0 && p.known {
		return usage("--secret: pfar knows which secrets %s needs", p.service.Title).
			withHint("pfar services %s lists them; write --secret-file KEY=FILE for one", p.service.Name)
	}
	for _, word := range variables {
		variable, host, at := strings.Cut(word, "@")
		why := declaration.VariableFault(variable)
		if block.SecretLooking(variable) {
			why = "it looks like a secret"
		}
		if why != "" { // it may be a value
			return usage("--secret wants the name of a variable: %s", why).
				withHint("pfar asks for the value; replace a secret that you just typed, the shell may have stored it")
		}
		if slices.ContainsFunc(p.service.Secrets, func(k catalog.Secret) bool { return k.Env == variable }) {
			return usage("--secret: %s is there twice", variable)
		}
		k := catalog.Secret{Env: variable, Key: catalog.KeyFor(p.choices.Server, variable)}
		if like, is := known.Brokered(variable); is && !at {
			k.Deliver, k.Hosts, k.In, k.Prefixes = broker.OnWire, like.Hosts, like.In, like.Prefixes
			k.Where, k.URL = like.Where, like.URL
		} else if at {
			if _, err := egress.ParseEndpoint(host); err != nil {
				return usage("--secret %s@HOST: %w", variable, err)
			}
			k.Deliver, k.Hosts, k.In = broker.OnWire, []string{host}, broker.Standard()
		}
		if p.service.Program.URL != "" {
			if at && !slices.Contains(p.service.Domains, host) {
				return usage("--secret %s: a secret of the server at %s goes only there", word, p.service.Domains[0])
			}
			k.Deliver, k.Hosts, k.In = broker.OnWire, p.service.Domains, broker.Standard()
		}
		for _, h := range k.Hosts {
			if !slices.Contains(p.service.Domains, h) {
				p.service.Domains = append(p.service.Domains, h)
			}
		}
		p.service.Secrets = append(p.service.Secrets, k)
	}
	return nil
}

// nameOfPackage returns a server's name for a package. It leaves out the words "mcp" and "server".
func nameOfPackage(p source.Package) string {
	scope, name, scoped := strings.Cut(strings.TrimPrefix(p.Name, "@"), "/")
	if !scoped {
		scope, name = "", p.Name
	}
	words := slices.DeleteFunc(strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("-_.", r) }),
		func(w string) bool { return w == "mcp" || w == "server" })
	if len(words) == 0 {
		words = []string{scope, name}[:1]
	}
	if words[0] == "" {
		words[0] = name
	}
	return declaration.NameNear(strings.Join(words, "-"))
}

// ofCommand proposes what a command line runs: a package, if a runner such as npx runs it, or a program.
func ofCommand(known catalog.Set, words []string) (proposal, error) {
	base := path.Base(words[0])
	if names, ok := source.Container(words); ok {
		if s, ok := known.Instead(names); ok {
			const remark = "%s would run the server outside of pfar's sandbox, so pfar runs %s instead. It takes nothing " +
				"else from the command line."
			return proposal{service: s, known: true, remarks: []string{fmt.Sprintf(remark, base, s.Program.Package)}}, nil
		}
		return proposal{}, usage("%s would run the server outside of pfar's sandbox", base).
			withHint("add what the image runs: pfar add npm:NAME@VERSION, pypi:NAME==VERSION or -- PROGRAM ARGUMENTS...")
	}
	if strings.Contains(base, "=") {
		return proposal{}, usage("a command begins with a program, not with a variable").
			withHint("write variables into env of its declaration afterwards: man pfar-declaration")
	}
	p, args, err := source.Command(words)
	if err == nil {
		return ofPackage(known, p, args)
	}
	if _, _, runs := source.RunnerOf(append([]string{base}, words[1:]...)); runs {
		return proposal{}, usage("%w", err).withHint("pfar add npm:NAME@VERSION or pypi:NAME==VERSION")
	}
	program, titled := words[0], words[0]
	if strings.Contains(program, "/") {
		if program, err = filepath.Abs(program); err != nil {
			return proposal{}, err
		}
	} else if len(words) > 1 && !strings.HasPrefix(words[1], "-") { // an interpreter, by custom
		titled = words[1]
	}
	name := path.Base(titled)
	name = declaration.NameNear(strings.TrimSuffix(name, path.Ext(name)))
	return stranger(name, program, catalog.Program{Command: program, Args: slices.Clone(words[1:])})
}

// ofURL proposes the remote server at an address. pfar connects to nobody before the person has agreed, so it does not
// know yet whether an MCP server is there.
func ofURL(known catalog.Set, text string) (proposal, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return proposal{}, usage("this is not an address").withHint("write https://HOST/PATH")
	}
	if u.User != nil {
		return proposal{}, usage("the address has a name or a password in it; change the password that you just typed").
			withHint("write https://HOST/PATH")
	}
	if u.Scheme != "https" {
		return proposal{}, usage("%q is not encrypted", u.Scheme+"://"+u.Host).
			withHint("write https://%s; a declaration of yours may have an http:// url and insecure = \"REASON\" "+
				"(pfar-declaration(5))", u.Host)
	}
	for _, s := range known.All() {
		if r, err := url.Parse(s.Remote.URL); err == nil && s.Remote.URL != "" && r.Host == u.Host {
			if u.RawQuery == "" && len(u.Path) > 1 && u.Path != r.Path && !block.SecretWithin(u.Path) {
				s.Remote.URL, s.Remote.Transport = u.String(), "" // some have a server for each tenant
			}
			return ofVendor(s), nil
		}
	}
	return ofRemote(u)
}

// ofPages proposes a server that opens pages of one host, for an address where no MCP server is.
func ofPages(known catalog.Set, host string) (proposal, error) {
	fetch, ok := known.Find("fetch")
	if !ok || fetch.Program.Gone != "" {
		return proposal{}, fail(exitFailed, "the catalogue has no service \"fetch\", which opens pages")
	}
	return proposal{
		service: fetch, known: true,
		choices: catalog.Choices{
			Answers: map[string]string{"host": host},
		},
		remarks: []string{"This server opens pages of " + host + " and reaches nothing else."},
	}, nil
}

// ofVendor proposes the server that the vendor of a service runs.
func ofVendor(s catalog.Service) proposal {
	p := proposal{service: s.Elsewhere(), known: true, remarks: []string{
		"This server runs elsewhere: its owner gets what calls send to it, and pfar cannot confine it.",
	}}
	p.service.Secrets = slices.DeleteFunc(p.service.Secrets, func(k catalog.Secret) bool { return k.Optional })
	if s.Program.Package != "" {
		p.remarks = append(p.remarks, "To run "+s.Program.Package+" on this machine instead, run: pfar add "+s.Name)
	}
	return p
}

// ofRemote proposes a remote server of which nothing is known.
func ofRemote(u *url.URL) (proposal, error) {
	if u.RawQuery != "" || block.SecretWithin(u.Path) {
		return proposal{}, usage("the address may have a secret in it; change the secret that you just typed").
			withHint("write https://%s/PATH, and --secret TOKEN", u.Host)
	}
	words := slices.DeleteFunc(strings.Split(u.Hostname(), "."), func(w string) bool {
		return w == "mcp" || w == "www" || w == "api"
	})
	name := declaration.NameNear(strings.Join(words[:max(1, len(words)-1)], "-"))
	p, err := stranger(name, u.String(), catalog.Program{URL: u.String()})
	p.service.Domains = []string{u.Host}
	p.remarks = []string{
		"pfar does not know this server. It runs elsewhere: its owner gets what calls send to it, and pfar cannot " +
			"confine it. What runs here reaches " + u.Host + " and nothing else.",
		"If it wants a token that you have, add --secret TOKEN. If it wants you to sign in, pfar notes that in the " +
			"declaration, and says what to type. If it answers, but not as an MCP server, pfar asks whether to set up a " +
			"server that opens pages of " + u.Host + ".",
	}
	return p, err
}
