package declaration

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/block"
)

const (
	maxArg       = 128<<10 - 1 // of arguments and variables: MAX_ARG_STRLEN of execve(2), less the NUL
	maxVariables = 256
	maxScopes    = 64
)

var (
	variableName = block.MustBound(128, `^[A-Za-z_][A-Za-z0-9_]*$`)
	vaultKey     = block.MustBound(64, `^[a-z0-9_-]+$`)
	scopePattern = block.MustBound(256, `^[\x21\x23-\x5b\x5d-\x7e]+$`) // RFC 6749, section 3.3
	expansion    = regexp.MustCompile(`\$[A-Z_][A-Z0-9_]{2,}`)
)

const (
	whyProxy    = "pfar sets it, and the server has no other way out. Write the host into allowed_domains"
	whySandbox  = "pfar sets it for the sandbox. Remove it"
	whyLoader   = "it makes programs load or run other code than the command. Remove it"
	whyLauncher = "pfar's own processes use it. Remove it"
)

// IsVaultKey reports whether key may be the name of a secret in the vault, whose file and units are named so.
func IsVaultKey(key string) bool { return vaultKey.MatchString(key) }

// reserved says why a variable may not be set, or "".
func reserved(name string) string {
	switch strings.ToUpper(name) {
	case "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY":
		return whyProxy
	}
	switch name {
	case "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "PWD", "OLDPWD":
		return whySandbox
	case "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "PYTHONSTARTUP", "GCONV_PATH", "GLIBC_TUNABLES",
		"LOCPATH", "NLSPATH", "IFS":
		return whyLoader
	case "NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY", "WATCHDOG_USEC", "WATCHDOG_PID", "MAINPID", "MANAGERPID", "INVOCATION_ID", "JOURNAL_STREAM":
		return whyLauncher
	}
	switch {
	case strings.HasPrefix(name, "LD_"), strings.HasPrefix(name, "BASH_FUNC_"):
		return whyLoader
	case strings.HasPrefix(name, "LISTEN_"), strings.HasPrefix(name, "PFAR_"):
		return whyLauncher
	}
	return ""
}

// VariableFault says why a server may not have a variable of this name, or "".
func VariableFault(name string) string {
	if !variableName.MatchString(name) {
		return "it is not a valid variable name"
	}
	why, _, _ := strings.Cut(reserved(name), ".")
	return why
}

// variable judges the name that env or auth gives to a variable.
func (d *variables) variable(f *block.Field) bool {
	if !variableName.MatchString(f.Key) {
		d.Problem(f.At, "Invalid variable", "%s is not a variable name: use at most 128 letters, digits and _, not a digit "+
			"first. Write NOTION_TOKEN, for example.", block.QuoteName(f.Key))
		return false
	}
	if why := reserved(f.Key); why != "" {
		d.Problem(f.At, "Reserved variable", "%s cannot be set: %s.", f.Key, why)
		return false
	}
	return true
}

// variables reads auth, env and token_env, which give a server its variables.
type variables struct {
	*reader
	server   *Server
	auths    []*block.Field
	detailed []*block.Field // of auths, those that are tables
	envs     []*block.Field
	token    *block.Field // token_env
	scoped   *block.Field // scopes
}

// keys are the fixed keys of auth. Its other keys are variables of the server.
func (d *variables) keys() []block.Key {
	return []block.Key{
		key("token_env", `"NOTION_TOKEN"`, "", d.tokenEnv),
		key("scopes", `["repo:read"]`, `[]`, d.scopes),
	}
}

// read reads the credentials. What is not a reference may be the secret itself, so no message repeats it.
func (d *variables) read(f *block.Field) {
	n, ok := d.table(f)
	if !ok {
		return
	}
	known := d.called(authSection)
	for _, v := range n.Fields {
		if k, ok := known.Find(v.Key); ok {
			v.Example = k.Written()
			k.Value(v)
			continue
		}
		d.auths = append(d.auths, v)
		d.Places[authSection+"."+v.Key] = v.At
		if v.Val.Kind == block.Table {
			d.detailed = append(d.detailed, v)
		} else if c, ok := d.reference(v.Key, v); ok && d.variable(v) {
			d.server.Credentials = append(d.server.Credentials, c)
		}
	}
}

// reference reads "vault:KEY" or "$NAME", for a variable.
func (d *variables) reference(variable string, f *block.Field) (Credential, bool) {
	key, from, ok := reference(f.Val)
	if ok {
		return Credential{Env: variable, Key: key, From: from}, true
	}
	d.Hidden.All(f.Val)
	suggestion := vaultName(variable)
	switch {
	case f.Val.Kind == block.Broken:
		d.Hidden.Add(f.Val.At)
	case f.Val.Kind != block.Text:
		d.Problem(f.Val.At, "Wrong type", "A credential is a reference in quotes, not %s. Write %s = \"vault:%s\", or "+
			"\"$NAME\" for a variable of pfar's environment.", f.Val.Kind, quoteKey(f.Key), suggestion)
	case f.Val.Text == "":
		d.Problem(f.Val.At, "Empty value", "%s has no reference. Write %s = \"vault:%s\", or leave it out.",
			block.QuoteName(f.Key), quoteKey(f.Key), suggestion)
	case strings.HasPrefix(strings.ToLower(f.Val.Text), "vault"):
		d.Problem(f.Val.At, "Invalid vault key", "A reference is \"vault:\" and a key of at most 64 characters from a to "+
			"z, 0 to 9, _ and -. Write %s = \"vault:%s\".", quoteKey(f.Key), suggestion)
	case strings.HasPrefix(f.Val.Text, "$"):
		d.Problem(f.Val.At, "Invalid reference", "A reference to a variable of pfar's environment is \"$\" and its name, "+
			"and nothing else. Write %s = \"$%s\".", quoteKey(f.Key), cmp.Or(variableName.FindString(variable), "NAME"))
	default:
		d.Problem(f.Val.At, "Secret in a declaration", "auth holds references, never a secret. Store it with `pfar vault "+
			"set %s` and write %s = \"vault:%s\", or \"$NAME\" for a variable of pfar's environment. If this was a real "+
			"secret, replace it: the file has held it.", suggestion, quoteKey(f.Key), suggestion)
	}
	return Credential{}, false
}

func reference(n *block.Node) (key, from string, ok bool) {
	if n.Kind != block.Text {
		return "", "", false
	}
	if k, is := strings.CutPrefix(n.Text, "vault:"); is && IsVaultKey(k) && !block.SecretLooking(k) {
		return k, "", true
	}
	if v, is := strings.CutPrefix(n.Text, "$"); is && variableName.MatchString(v) {
		return "", v, true
	}
	return "", "", false
}

// vaultName derives a vault key from a variable's name.
func vaultName(variable string) string {
	s := strings.ToLower(variable)
	if !vaultKey.MatchString(s) || block.SecretLooking(variable) {
		return "notion_token"
	}
	return s
}

func quoteKey(key string) string {
	if variableName.MatchString(key) && !block.SecretLooking(key) {
		return key
	}
	return "NOTION_TOKEN"
}

// tokenEnv names the variable of pfar's environment that holds the token.
func (d *variables) tokenEnv(f *block.Field) {
	if d.token != nil {
		d.Problem(f.At, "Duplicate key", "%s was given already in line %d: it stands at the top or in auth. Keep one "+
			"of the two.", block.Quote(f.Key), d.token.At.Start.Line)
		return
	}
	d.token = f
	s, ok := d.Text(f)
	if !ok {
		d.Hidden.All(f.Val)
		return
	}
	if v, is := strings.CutPrefix(s, "$"); is && variableName.MatchString(v) {
		d.Problem(f.Val.At, "Invalid variable", "token_env is the name of a variable, without \"$\". Write token_env = %q.", v)
		return
	}
	if !variableName.MatchString(s) || block.SecretLooking(s) {
		d.Hidden.Add(f.Val.At)
		d.Problem(f.Val.At, "Invalid variable", "token_env is the name of the variable that holds the token, never the "+
			"token. Write %s.", f.Example)
		return
	}
	if why := reserved(s); why != "" {
		d.Problem(f.Val.At, "Reserved variable", "%s cannot be set: %s.", s, why)
		return
	}
	d.auths = append(d.auths, &block.Field{Key: s, At: f.Val.At, Val: f.Val})
	d.server.Credentials = append(d.server.Credentials, Credential{Env: s, From: s})
}

// scopes reads what the server's OAuth tokens are to have been granted.
func (d *variables) scopes(f *block.Field) {
	d.scoped = f
	d.server.Scopes = scopesOf(d.reader, f, "the server")
}

// scopesOf reads a list of scopes, which somebody needs.
func scopesOf(d *reader, f *block.Field, who string) (list []string) {
	if f.Val.Kind != block.List {
		d.Hidden.All(f.Val)
		d.Problem(f.Val.At, "Wrong type", "scopes takes a list of strings, not %s. Write scopes = [\"repo:read\"].",
			f.Val.Kind)
		return nil
	}
	if len(f.Val.Items) > maxScopes {
		d.Problem(f.Val.At, "Too many scopes", "scopes has %d entries, and room for %d. Write the ones that %s needs.",
			len(f.Val.Items), maxScopes, who)
		return nil
	}
	for _, n := range f.Val.Items {
		switch {
		case n.Kind == block.Broken:
		case n.Kind != block.Text || !scopePattern.MatchString(n.Text) || block.SecretLooking(n.Text):
			d.Hidden.All(n)
			d.Problem(n.At, "Invalid scope", "A scope is one word in quotes, without spaces. "+
				"Write scopes = [\"repo:read\", \"user:read\"].")
		case slices.Contains(list, n.Text):
			d.Caution(n.At, "Duplicate scope", "The scope %s is listed twice. Remove one of the two.", block.Quote(n.Text))
		default:
			list = append(list, n.Text)
		}
	}
	return list
}

// checkScopes warns of scopes that can be compared with nothing: those of a value which is no token set are nowhere.
func (d *variables) checkScopes() {
	if len(d.server.Scopes) == 0 || len(d.server.Credentials) < len(d.auths) ||
		slices.ContainsFunc(d.server.Credentials, func(c Credential) bool { return c.Key != "" }) {
		return
	}
	d.Caution(d.scoped.At, "Scopes not compared", "Scopes are compared with those of OAuth token sets in the vault, and "+
		"no credential of this server is in it. Write NOTION_TOKEN = \"vault:notion_token\" for one that `pfar vault set "+
		"notion_token --oauth` has stored, or remove scopes.")
}

// env reads the variables that are no secret, and "$NAME", which may be one.
func (d *variables) env(f *block.Field) {
	n, ok := d.table(f)
	if !ok {
		return
	}
	if len(n.Fields) > maxVariables {
		d.Problem(n.Fields[maxVariables].At, "Too many variables", "env has %d, and room for %d. Give the server a "+
			"file to read.", len(n.Fields), maxVariables)
		return
	}
	for _, v := range n.Fields {
		d.envs = append(d.envs, v)
		d.Places["env."+v.Key] = v.At
		good := d.variable(v)
		if v.Val.Kind != block.Text {
			d.notText(v)
			continue
		}
		d.envValue(v, good)
	}
}

func (d *variables) notText(f *block.Field) {
	if block.SecretName(f.Key) {
		d.Hidden.All(f.Val)
	}
	switch f.Val.Kind {
	case block.Broken:
	case block.Number, block.Boolean:
		w := d.Written(f.Val.At)
		if block.SecretName(f.Key) {
			w = "..."
		}
		d.Problem(f.Val.At, "Wrong type", "A variable is a string, not %s. Write the value in quotes: %s.", f.Val.Kind, block.Quote(w))
	default:
		d.Problem(f.Val.At, "Wrong type", "A variable is a string, not %s. Write %s = \"...\".", f.Val.Kind, quoteKey(f.Key))
	}
}

func (d *variables) envValue(f *block.Field, good bool) {
	s, at := f.Val.Text, f.Val.At
	key, from, isReference := reference(f.Val)
	switch {
	case strings.ContainsRune(s, 0):
		d.Problem(at, "NUL in a value", "A variable cannot contain a NUL. Remove it.")
		return
	case len(s)+len(f.Key) >= maxArg:
		d.Problem(at, "Too long", "The variable has %d bytes, and the kernel passes on %d. Give the server a file to read.", len(s), maxArg)
		return
	case key != "":
		d.Problem(at, "Reference in env", "References to the vault stand in auth. Write %s = %q there.", quoteKey(f.Key), s)
		return
	case !good:
		return
	case isReference:
		d.server.Credentials = append(d.server.Credentials, Credential{Env: f.Key, From: from})
		return
	case expansion.MatchString(s):
		d.Caution(at, "Not expanded", "Only a whole value \"$NAME\" is taken from pfar's environment. This one is passed "+
			"on as it stands. Write the value out.")
	case block.PasswordWithin(s):
		d.Hidden.Add(at)
		d.Caution(at, "Secret in a declaration", "The address in %s has a password in it, and everyone who may read this "+
			"file has it. Store the whole address with `pfar vault set %s` and write %s = \"vault:%s\" in auth.",
			quoteKey(f.Key), vaultName(f.Key), quoteKey(f.Key), vaultName(f.Key))
	case block.SecretWithin(s):
		d.Hidden.Add(at)
		d.Caution(at, "Secret in a declaration", "The value of %s looks like a secret, and everyone who may read this file "+
			"has it. Store it with `pfar vault set %s` and write %s = \"vault:%s\" in auth.", quoteKey(f.Key), vaultName(f.Key),
			quoteKey(f.Key), vaultName(f.Key))
	}
	d.server.Env = append(d.server.Env, Variable{Name: f.Key, Value: s})
}

// check reports the variables that two sections set, and sorts them.
func (d *variables) check() {
	first := map[string]*block.Field{}
	for _, f := range slices.Concat(d.auths, d.envs) {
		if have, ok := first[f.Key]; ok {
			d.Problem(f.At, "Duplicate variable", "%s is set already in line %d: env, auth and token_env all set variables of "+
				"the server. Keep one.", block.Quote(f.Key), have.At.Start.Line)
			d.Hidden.All(f.Val)
			continue
		}
		first[f.Key] = f
	}
	slices.SortFunc(d.server.Credentials, func(a, b Credential) int { return cmp.Compare(a.Env, b.Env) })
	slices.SortFunc(d.server.Env, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
}
