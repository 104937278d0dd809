package importer

import (
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/redact"
)

// arguments is the part of a draft about them.
type arguments struct{ *draft }

// interpreter is a program that takes another one as its argument, which the sandbox shows without being told.
var interpreter = regexp.MustCompile(`^(node(js)?|python[0-9.]*|bun|deno|tsx|ts-node|ruby|perl|php|java|lua|sh|bash)$`)

// put puts the arguments where the service wants them, and shows the sandbox the paths among them.
func (d arguments) put() {
	args, template := d.args, d.service.Program.Args
	packaged := d.choices.Package != "" || d.service.Program.Package != ""
	script := !packaged && interpreter.MatchString(path.Base(d.command.Text))
	var own []string
	access := "read"
	if ps := d.service.Parameters; len(template) == 1 && len(ps) == 1 && template[0] == "{"+ps[0].Name+"}" {
		access = ps[0].Access // a service of one path takes several
	}
	if d.known && len(template) > 0 {
		own = slices.Clone(template)
		if !slices.ContainsFunc(template, func(t string) bool { return strings.Contains(t, "{") }) {
			d.leaveOut(args, template)
			return
		}
		args = d.answerBy(template, args)
	}
	for i := 0; i < len(args) && d.Refused == ""; i++ {
		a := args[i]
		next := Word{}
		if i+1 < len(args) {
			next = args[i+1]
		}
		took, joined := d.secretOption(a, next)
		if took {
			if !joined {
				i++
			}
			continue
		}
		a = d.absolute(a)
		if d.unfit(a); d.Refused != "" {
			return
		}
		first := script && !strings.HasPrefix(a.Text, "-")
		script = script && !first
		if first {
			own = append(own, a.Text)
		} else {
			own = append(own, d.pathIn(a, access))
		}
	}
	d.service.Program.Args = own
}

// leaveOut says which arguments are not those that pfar starts a service with.
func (d arguments) leaveOut(args []Word, template []string) {
	for i := 0; i < len(args); i++ {
		next := Word{}
		if i+1 < len(args) {
			next = args[i+1]
		}
		took, joined := d.secretOption(args[i], next)
		switch {
		case d.Refused != "": // the next word may be the secret
			return
		case took && !joined:
			i++
		case took, slices.Contains(template, args[i].Text):
		default:
			d.note(args[i].Line, "the argument %s is left out: pfar starts %s with arguments of its own",
				block.Quote(args[i].Text), d.service.Title)
		}
	}
}

// answerBy reads the answers to parameters from where a service has them among its arguments, and returns the others.
func (d arguments) answerBy(template []string, args []Word) []Word {
	n := 0
	for _, t := range template {
		if n == len(args) {
			return nil
		}
		if !strings.Contains(t, "{") {
			if args[n].Text == t {
				n++
			}
			continue
		}
		if d.unfitButPassword(args[n]); d.Refused != "" {
			return nil
		}
		d.answer(t, d.withoutPassword(args[n]).Text)
		n++
	}
	return args[n:]
}

// answer takes the values of parameters out of a text that a service has a template of.
func (d *draft) answer(template, text string) bool {
	m := parameter.FindStringSubmatchIndex(template)
	if m == nil {
		return false
	}
	before, after := template[:m[0]], template[m[1]:]
	rest, ok := strings.CutPrefix(text, before)
	if !ok || strings.Contains(after, "{") || !strings.HasSuffix(rest, after) {
		return false
	}
	name, value := template[m[2]:m[3]], strings.TrimSuffix(rest, after)
	for _, p := range d.service.Parameters {
		if p.Name == name && p.Access != "" {
			value = path.Clean(value)
		}
	}
	if before != "" { // a URL may end in a slash
		value = strings.TrimSuffix(value, "/")
	}
	d.choices.Answers[name] = value
	return true
}

var parameter = regexp.MustCompile(`\{([^{}]*)\}`)

// absolute has a path begin at the root, if it is known where the server would have started.
func (d arguments) absolute(a Word) Word {
	if strings.HasPrefix(a.Text, "./") || strings.HasPrefix(a.Text, "../") || a.Text == "." {
		if path.IsAbs(d.cwd.Text) && len(d.cwd.lacks) == 0 {
			a.Text = path.Join(d.cwd.Text, a.Text)
		} else {
			d.refuse(a.Line, "the argument %s is a relative path, and the file does not say where it begins; "+
				"write an absolute path", block.Quote(a.Text))
		}
	}
	return a
}

// pathIn has the sandbox show a path that an argument has. What an option names may be read alone.
func (d arguments) pathIn(a Word, access string) string {
	option, file := "", a.Text
	if i := strings.IndexByte(a.Text, '='); strings.HasPrefix(a.Text, "-") && i > 0 {
		option, file, access = a.Text[:i+1], a.Text[i+1:], "read"
	}
	if !path.IsAbs(file) || file == "/" || strings.ContainsAny(file, "\n") || d.listensAt(file) {
		return a.Text
	}
	return option + d.shown(file, "", a.Line, access)
}

// listensAt reports whether a path is the one at which the server listens, which is a path of its sandbox.
func (d arguments) listensAt(file string) bool {
	own := d.path.Text
	return d.hasPath() && (file == own || file == own+".in" || file == own+".out" || file == path.Dir(own))
}

var optionName = regexp.MustCompile(`^--?([A-Za-z][A-Za-z0-9_.-]*)(=(?s:(.*)))?$`)

// secretOption takes a secret of the service's out of the arguments, where every user of the host can read it. Another
// one has no place to go. joined reports whether name and value are one word.
func (d arguments) secretOption(a, next Word) (took, joined bool) {
	value := a
	m := optionName.FindStringSubmatch(a.Text)
	variable := ""
	switch {
	case m != nil && m[2] != "":
		variable, value.Text, joined = m[1], m[3], true
	case m != nil:
		variable, value = m[1], next
	}
	variable = strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(variable))
	if m != nil && value.Text == "" {
		return false, joined
	}
	for i, k := range d.service.Secrets {
		fits := variable != "" && (variable == k.Env || strings.HasSuffix(k.Env, "_"+variable) && secretName("_"+variable))
		if m == nil {
			whole, err := regexp.Compile(`^(?:` + k.Pattern + `)$`)
			fits = err == nil && k.Pattern != "" && whole.MatchString(value.Text)
		}
		if !fits || d.given[k.Env] || k.Deliver == broker.InFile {
			continue
		}
		d.serviceSecret(i, value)
		d.note(a.Line, "its argument with a secret is left out: the server gets it in %s", k.Env)
		return true, joined || m == nil
	}
	if m != nil && secretName("_"+variable) && !strings.HasPrefix(value.Text, "-") && !trivial.MatchString(value.Text) &&
		!path.IsAbs(value.Text) {
		d.refuse(a.Line, "the argument %s has a secret, and every user of this machine can read arguments; have the server "+
			"take it from a variable, and name that in env", block.QuoteName(strings.SplitN(a.Text, "=", 2)[0]))
	}
	return false, joined
}

// unfit refuses an argument that has a secret, or that is not known.
func (d arguments) unfit(a Word) {
	if d.unfitButPassword(a); d.Refused == "" && (block.PasswordWithin(a.Text) || queried(a.Text)) {
		d.refuse(a.Line, "an argument is an address with a password or a token, and every user of this machine can read "+
			"arguments; have the server take it from a variable, and name that in env")
	}
}

func (d arguments) unfitButPassword(a Word) {
	stripped := withoutUser.ReplaceAllString(a.Text, "://")
	switch {
	case len(a.lacks) > 0:
		d.refuse(a.Line, "an argument needs %s, and the file does not have its value; write the value into the file",
			block.QuoteName(a.lacks[0].written))
	case block.SecretWithin(stripped) && !filePath.MatchString(a.Text), redact.Strip(stripped) != stripped:
		d.refuse(a.Line, "an argument looks like a secret, and every user of this machine can read arguments; have the "+
			"server take it from a variable, and name that in env")
	}
}

var withoutUser = regexp.MustCompile(`://[^\s/?#@]*@`)

// withoutPassword takes the password out of an address, if the service takes it from a variable.
func (d arguments) withoutPassword(a Word) Word {
	i := d.secretOf("PGPASSWORD")
	u, err := url.Parse(a.Text)
	if i < 0 || err != nil || u.User == nil {
		return a
	}
	password, said := u.User.Password()
	if !said {
		return a
	}
	d.serviceSecret(i, Word{Text: password, Line: a.Line})
	d.note(a.Line, "the password of the address goes into PGPASSWORD")
	u.User = url.User(u.User.Username())
	return Word{Text: u.String(), Line: a.Line}
}
