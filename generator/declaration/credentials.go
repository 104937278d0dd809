package declaration

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

const (
	maxVariables = 256
	maxScopes    = 64
)

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	vaultKey     = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)
	scopePattern = regexp.MustCompile(`^[\x21\x23-\x5b\x5d-\x7e]{1,256}$`) // RFC 6749, section 3.3
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
	case "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "PYTHONSTARTUP", "GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH", "NLSPATH", "IFS":
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

// variable judges the name that env or auth gives to a variable.
func (d *decoder) variable(f *field) bool {
	if !variableName.MatchString(f.key) {
		d.report(problem(f.rng, "Invalid variable", "%s is not a variable name: use at most 128 letters, digits and _, not a digit first. Write NOTION_TOKEN, for example.", quoteName(f.key)))
		return false
	}
	if why := reserved(f.key); why != "" {
		d.report(problem(f.rng, "Reserved variable", "%s cannot be set: %s.", f.key, why))
		return false
	}
	return true
}

// auth reads the credentials. What is not a reference may be the secret itself, so no message repeats it.
func (d *decoder) auth(f *field) {
	n, ok := d.table(f)
	if !ok {
		return
	}
	for _, v := range n.fields {
		if k, ok := authKeys().find(v.key); ok {
			k.read(d, v)
			continue
		}
		d.auths = append(d.auths, v)
		d.server.places[authSection+"."+v.key] = v.rng
		if v.val.kind == table {
			d.detailed = append(d.detailed, v)
		} else if c, ok := d.reference(v.key, v); ok && d.variable(v) {
			d.server.Credentials = append(d.server.Credentials, c)
		}
	}
}

// reference reads "vault:KEY" or "$NAME", for a variable.
func (d *decoder) reference(variable string, f *field) (Credential, bool) {
	key, from, ok := reference(f.val)
	if ok {
		return Credential{Env: variable, Key: key, From: from}, true
	}
	d.hidden.all(f.val)
	suggestion := vaultName(variable)
	switch {
	case f.val.kind == broken:
		d.hidden.add(f.val.rng)
	case f.val.kind != text:
		d.report(problem(f.val.rng, "Wrong type", "A credential is a reference in quotes, not %s. Write %s = \"vault:%s\", or \"$NAME\" for a variable of pfar's environment.", f.val.kind, quoteKey(f.key), suggestion))
	case f.val.text == "":
		d.report(problem(f.val.rng, "Empty value", "%s has no reference. Write %s = \"vault:%s\", or leave it out.", quoteName(f.key), quoteKey(f.key), suggestion))
	case strings.HasPrefix(strings.ToLower(f.val.text), "vault"):
		d.report(problem(f.val.rng, "Invalid vault key", "A reference is \"vault:\" and a key of at most 64 characters from a to z, 0 to 9, _ and -. Write %s = \"vault:%s\".", quoteKey(f.key), suggestion))
	case strings.HasPrefix(f.val.text, "$"):
		d.report(problem(f.val.rng, "Invalid reference", "A reference to a variable of pfar's environment is \"$\" and its name, and nothing else. Write %s = \"$%s\".", quoteKey(f.key), cmp.Or(variableName.FindString(variable), "NAME")))
	default:
		d.report(problem(f.val.rng, "Secret in a declaration", "auth holds references, never a secret. Store it with `pfar vault set %s` and write %s = \"vault:%s\", or \"$NAME\" for a variable of pfar's environment. If this was a real secret, replace it: the file has held it.", suggestion, quoteKey(f.key), suggestion))
	}
	return Credential{}, false
}

func reference(n *node) (key, from string, ok bool) {
	if n.kind != text {
		return "", "", false
	}
	if k, is := strings.CutPrefix(n.text, "vault:"); is && IsVaultKey(k) && !secretLooking(k) {
		return k, "", true
	}
	if v, is := strings.CutPrefix(n.text, "$"); is && variableName.MatchString(v) {
		return "", v, true
	}
	return "", "", false
}

// vaultName derives a vault key from a variable's name.
func vaultName(variable string) string {
	s := strings.ToLower(variable)
	if !vaultKey.MatchString(s) || secretLooking(variable) {
		return "notion_token"
	}
	return s
}

func quoteKey(key string) string {
	if variableName.MatchString(key) && !secretLooking(key) {
		return key
	}
	return "NOTION_TOKEN"
}

// tokenEnv names the variable of pfar's environment that holds the token.
func (d *decoder) tokenEnv(f *field) {
	if d.token != nil {
		d.report(problem(f.rng, "Duplicate key", "%s was given already in line %d: it stands at the top or in auth. Keep one of the two.", quote(f.key), d.token.rng.Start.Line))
		return
	}
	d.token = f
	s, ok := d.text(f)
	if !ok {
		d.hidden.all(f.val)
		return
	}
	if v, is := strings.CutPrefix(s, "$"); is && variableName.MatchString(v) {
		d.report(problem(f.val.rng, "Invalid variable", "token_env is the name of a variable, without \"$\". Write token_env = %q.", v))
		return
	}
	if !variableName.MatchString(s) || secretLooking(s) {
		d.hidden.add(f.val.rng)
		d.report(problem(f.val.rng, "Invalid variable", "token_env is the name of the variable that holds the token, never the token. Write %s.", d.example("token_env")))
		return
	}
	if why := reserved(s); why != "" {
		d.report(problem(f.val.rng, "Reserved variable", "%s cannot be set: %s.", s, why))
		return
	}
	d.auths = append(d.auths, &field{key: s, rng: f.val.rng, val: f.val})
	d.server.Credentials = append(d.server.Credentials, Credential{Env: s, From: s})
}

// scopes reads what the server's OAuth tokens are to have been granted.
func (d *decoder) scopes(f *field) {
	d.scoped = f
	if f.val.kind != list {
		d.hidden.all(f.val)
		d.report(problem(f.val.rng, "Wrong type", "scopes takes a list of strings, not %s. Write scopes = [\"repo:read\"].", f.val.kind))
		return
	}
	if len(f.val.items) > maxScopes {
		d.report(problem(f.val.rng, "Too many scopes", "scopes has %d entries, and room for %d. Write the ones that the server needs.", len(f.val.items), maxScopes))
		return
	}
	for _, n := range f.val.items {
		switch {
		case n.kind == broken:
		case n.kind != text || !scopePattern.MatchString(n.text) || secretLooking(n.text):
			d.hidden.all(n)
			d.report(problem(n.rng, "Invalid scope", "A scope is one word in quotes, without spaces. Write scopes = [\"repo:read\", \"user:read\"]."))
		case slices.Contains(d.server.Scopes, n.text):
			d.report(caution(n.rng, "Duplicate scope", "The scope %s is listed twice. Remove one of the two.", quote(n.text)))
		default:
			d.server.Scopes = append(d.server.Scopes, n.text)
		}
	}
}

// checkScopes warns of scopes that can be compared with nothing: those of a value which is no token set are nowhere.
func (d *decoder) checkScopes() {
	if len(d.server.Scopes) == 0 || len(d.server.Credentials) < len(d.auths) ||
		slices.ContainsFunc(d.server.Credentials, func(c Credential) bool { return c.Key != "" }) {
		return
	}
	d.report(caution(d.scoped.rng, "Scopes not compared", "Scopes are compared with those of OAuth token sets in the vault, and no credential of this server is in it. Write NOTION_TOKEN = \"vault:notion_token\" for one that `pfar vault set notion_token --oauth` has stored, or remove scopes."))
}

// env reads the variables that are no secret, and "$NAME", which may be one.
func (d *decoder) env(f *field) {
	n, ok := d.table(f)
	if !ok {
		return
	}
	if len(n.fields) > maxVariables {
		d.report(problem(n.fields[maxVariables].rng, "Too many variables", "env has %d, and room for %d. Give the server a file to read.", len(n.fields), maxVariables))
		return
	}
	for _, v := range n.fields {
		d.envs = append(d.envs, v)
		d.server.places["env."+v.key] = v.rng
		good := d.variable(v)
		if v.val.kind != text {
			d.notText(v)
			continue
		}
		d.envValue(v, good)
	}
}

func (d *decoder) notText(f *field) {
	if secretName(f.key) {
		d.hidden.all(f.val)
	}
	switch f.val.kind {
	case broken:
	case number, boolean:
		w := string(f.val.rng.SliceBytes(d.src.bytes))
		if secretName(f.key) {
			w = "..."
		}
		d.report(problem(f.val.rng, "Wrong type", "A variable is a string, not %s. Write the value in quotes: %s.", f.val.kind, quote(w)))
	default:
		d.report(problem(f.val.rng, "Wrong type", "A variable is a string, not %s. Write %s = \"...\".", f.val.kind, quoteKey(f.key)))
	}
}

func (d *decoder) envValue(f *field, good bool) {
	s, at := f.val.text, f.val.rng
	key, from, isReference := reference(f.val)
	switch {
	case strings.ContainsRune(s, 0):
		d.report(problem(at, "NUL in a value", "A variable cannot contain a NUL. Remove it."))
		return
	case len(s)+len(f.key) >= maxArg:
		d.report(problem(at, "Too long", "The variable has %d bytes, and the kernel passes on %d. Give the server a file to read.", len(s), maxArg))
		return
	case key != "":
		d.report(problem(at, "Reference in env", "References to the vault stand in auth. Write %s = %q there.", quoteKey(f.key), s))
		return
	case !good:
		return
	case isReference:
		d.server.Credentials = append(d.server.Credentials, Credential{Env: f.key, From: from})
		return
	case expansion.MatchString(s):
		d.report(caution(at, "Not expanded", "Only a whole value \"$NAME\" is taken from pfar's environment. This one is passed on as it stands. Write the value out."))
	case passwordWithin(s):
		d.hidden.add(at)
		d.report(caution(at, "Secret in a declaration", "The address in %s has a password in it, and everyone who may read this file has it. Store the whole address with `pfar vault set %s` and write %s = \"vault:%s\" in auth.", quoteKey(f.key), vaultName(f.key), quoteKey(f.key), vaultName(f.key)))
	case secretWithin(s):
		d.hidden.add(at)
		d.report(caution(at, "Secret in a declaration", "The value of %s looks like a secret, and everyone who may read this file has it. Store it with `pfar vault set %s` and write %s = \"vault:%s\" in auth.", quoteKey(f.key), vaultName(f.key), quoteKey(f.key), vaultName(f.key)))
	}
	d.server.Env = append(d.server.Env, Variable{Name: f.key, Value: s})
}

// checkVariables reports the variables that two sections set, and sorts them.
func (d *decoder) checkVariables() {
	first := map[string]*field{}
	for _, f := range slices.Concat(d.auths, d.envs) {
		if have, ok := first[f.key]; ok {
			d.report(problem(f.rng, "Duplicate variable", "%s is set already in line %d: env, auth and token_env all set variables of the server. Keep one.", quote(f.key), have.rng.Start.Line))
			d.hidden.all(f.val)
			continue
		}
		first[f.key] = f
	}
	slices.SortFunc(d.server.Credentials, func(a, b Credential) int { return cmp.Compare(a.Env, b.Env) })
	slices.SortFunc(d.server.Env, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
}
