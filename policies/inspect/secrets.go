package inspect

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/scan"
)

// token is how the secrets of a service look: a beginning that says whose they are, and what has to follow.
type token struct {
	prefix string
	kind   string
	least  int // characters behind the prefix
	of     *scan.Set
}

var (
	isName    = set(alphanumeric + "_-")
	isDot     = set(alphanumeric + "_-.=")
	isCapital = set("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
	isHex     = set("0123456789abcdefABCDEF")
)

// tokens are those of the services that servers are for, and of those that developers have most. The lengths are
// lower bounds: a token that is cut is one.
var tokens = []token{
	{"github_pat_", "GitHub", 60, isName}, {"ghp_", "GitHub", 30, isPlain}, {"gho_", "GitHub", 30, isPlain},
	{"ghu_", "GitHub", 30, isPlain}, {"ghs_", "GitHub", 30, isPlain}, {"ghr_", "GitHub", 30, isPlain},
	{"glpat-", "GitLab", 20, isDot}, {"glrt-", "GitLab", 20, isDot}, {"gldt-", "GitLab", 20, isDot},
	{"ntn_", "Notion", 40, isPlain}, {"secret_", "Notion", 40, isPlain}, {"xoxb-", "Slack", 20, isName},
	{"xoxp-", "Slack", 20, isName}, {"xoxa-", "Slack", 20, isName}, {"xoxs-", "Slack", 20, isName},
	{"xoxe-", "Slack", 20, isName}, {"xoxe.xox", "Slack", 20, isDot}, {"xapp-", "Slack", 20, isName},
	{"sk_live_", "Stripe", 16, isPlain}, {"rk_live_", "Stripe", 16, isPlain}, {"sk_test_", "Stripe", 16, isPlain},
	{"rk_test_", "Stripe", 16, isPlain}, {"whsec_", "Stripe", 24, isPlain}, {"sbp_", "Supabase", 36, isPlain},
	{"sb_secret_", "Supabase", 20, isName}, {"sntryu_", "Sentry", 40, isHex}, {"sntrys_", "Sentry", 40, isBase64},
	{"lin_api_", "Linear", 32, isPlain}, {"lin_oauth_", "Linear", 32, isPlain}, {"figd_", "Figma", 36, isName},
	{"pat-na1-", "HubSpot", 30, isName}, {"pat-eu1-", "HubSpot", 30, isName}, {"ATATT3", "Atlassian", 60, isDot},
	{"CCIPAT_", "CircleCI", 20, isName}, {"pplx-", "Perplexity", 40, isPlain}, {"AIza", "Google", 35, isName},
	{"GOCSPX-", "Google", 24, isName}, {"ya29.", "Google", 30, isDot}, {"apify_api_", "Apify", 30, isPlain},
	{"fc-", "Firecrawl", 32, isHex}, {"ctx7sk", "Context7", 16, isName}, {"tvly-", "Tavily", 20, isName},
	{"BSA", "Brave", 24, isName}, {"mdb_sa_sk_", "MongoDB", 20, isName}, {"mdb_sa_id_", "MongoDB", 20, isName},
	{"sk-ant-", "Anthropic", 24, isName}, {"sk-proj-", "OpenAI", 24, isName}, {"sk-or-v1-", "OpenRouter", 32, isHex},
	{"sk-", "OpenAI", 40, isName}, {"gsk_", "Groq", 40, isPlain}, {"hf_", "Hugging Face", 30, isPlain},
	{"r8_", "Replicate", 30, isPlain}, {"nvapi-", "NVIDIA", 40, isName}, {"xai-", "xAI", 40, isPlain},
	{"AKIA", "AWS", 16, isCapital}, {"ASIA", "AWS", 16, isCapital}, {"npm_", "npm", 32, isPlain},
	{"pypi-", "PyPI", 40, isName}, {"rubygems_", "RubyGems", 40, isHex}, {"dop_v1_", "DigitalOcean", 40, isHex},
	{"SG.", "SendGrid", 50, isDot}, {"shpat_", "Shopify", 30, isHex}, {"shpss_", "Shopify", 30, isHex},
	{"hvs.", "Vault", 24, isName}, {"dapi", "Databricks", 32, isHex}, {"xkeysib-", "Brevo", 40, isName},
	{"PMAK-", "Postman", 40, isName}, {"dckr_pat_", "Docker", 24, isName}, {"AGE-SECRET-KEY-1", "age", 50, isPlain},
	{"tskey-", "Tailscale", 20, isName}, {"glsa_", "Grafana", 32, isName}, {"NRAK-", "New Relic", 24, isPlain},
	{"EAAC", "Meta", 80, isPlain}, {"sl.", "Dropbox", 100, isName},
}

// startOf has the tokens by their first two characters, and begins those that a token, or one of Airtable, begins with:
// at each character of a long text these are looked at.
var startOf, begins = func() (t [128][128][]token, b [1 << 14]bool) {
	for _, one := range tokens {
		t[one.prefix[0]][one.prefix[1]] = append(t[one.prefix[0]][one.prefix[1]], one)
		b[pair(one.prefix[0], one.prefix[1])] = true
	}
	b[pair(airtable[0], airtable[1])] = true
	return t, b
}()

// airtable is how a token of Airtable begins: 14 characters more, a dot, and at least 60 of a hexadecimal number.
const airtable = "pat"

// pair is a number for two characters of ASCII.
func pair(a, b byte) int { return int(a&0x7f)<<7 | int(b&0x7f) }

const (
	minBare  = 4 // characters of a prefix that is one within a word, too: "task-" and "shelf_" end in shorter ones, and see isMixed
	minToken = 16
	maxToken = 512 // of a longer one this much is looked at, so that many beginnings of one cost no more
)

// secrets looks for what is made as a secret is.
func (in *Inspection) secrets(text string, within []string) {
	f := isDot.In(text)
	for start := f.Run(0, minToken); start >= 0; {
		end := start + minToken
		for end < len(text) && isDot.Has(text[end]) {
			end++
		}
		in.tokens(text, start, end, within)
		start = f.Run(end, minToken)
	}
	in.privateKey(text, within)
	rotated := len(within) > 0 && within[len(within)-1] == "rot13" // a URL is one before that, too
	if _, after, found := strings.Cut(text, "://"); found && !rotated && strings.IndexByte(after, '@') >= 0 {
		for _, m := range userinfo.FindAllStringSubmatch(text, maxFindings) {
			in.secret("password in a URL", m[1], within)
		}
	}
}

// privateKey looks for the beginning of one in PEM. Its words stand in other places, too.
func (in *Inspection) privateKey(text string, within []string) {
	const words, begin = "PRIVATE KEY", "-----BEGIN "
	for from := 0; ; {
		k := strings.Index(text[from:], words)
		if k < 0 {
			return
		}
		k += from
		if strings.Contains(text[max(k-40, 0):k], begin) {
			in.secret("private key", text[k:min(k+64, len(text))], within)
			return
		}
		from = k + len(words)
	}
}

var userinfo = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s/?#:@"']{0,128}:([^\s/?#@"'<>{}$*]{4,256})@[a-zA-Z0-9\[]`)

// tokens looks for them among the characters from here to there, of which no others are beside them.
func (in *Inspection) tokens(text string, from, to int, within []string) {
	for i := from; i+minToken <= to; i++ {
		if !begins[pair(text[i], text[i+1])] {
			continue
		}
		if rest := text[i:to]; strings.HasPrefix(rest, airtable) && len(rest) > 18 && rest[17] == '.' &&
			length(rest[3:18], isPlain) == 14 && length(rest[18:min(len(rest), maxToken)], isHex) >= 60 {
			in.secret("Airtable", rest[:min(len(rest), maxToken)], within)
			return
		}
		next := i
		for _, t := range startOf[text[i]][text[i+1]] {
			rest, ok := strings.CutPrefix(text[i:to], t.prefix)
			if !ok {
				continue
			}
			n := length(rest[:min(len(rest), maxToken)], t.of)
			if !in.works(n, within) {
				return
			}
			joined := len(t.prefix) < minBare && t.of != isHex && i > from && isPlain.Has(text[i-1])
			switch {
			case n < t.least, joined && (to-from > maxToken || !isMixed(rest[:n])):
				continue
			case isPlaceholder(rest[:n]): // and so is what begins in it, but near its end
				next = max(next, i+n-minToken)
				continue
			}
			in.secret(t.kind, text[i:i+len(t.prefix)+n], within)
			next = i + len(t.prefix) + n - 1
			break
		}
		i = next
	}
	run := text[from:to]
	switch {
	case isJWT(run):
		in.secret("JWT", run, within)
	case to-from >= minAssigned && to-from <= 512 && isAssigned(text[max(from-40, 0):from]) && scan.Entropy(run) > 3.2 &&
		strings.ContainsAny(run, "0123456789") && !isPlaceholder(run):
		in.secret("assigned to a name of secrets", run, within)
	}
}

const minAssigned = 16

// assigned matches what stands before a value that is called a secret.
var assigned = regexp.MustCompile(`(?i)(api[_-]?key|secret|token|passw(or)?d|credential|authorization|access[_-]?key)[a-z_-]{0,16}\\?["']?\s*(:|=|:=|=>)\s*(bearer |basic |token )?\\?["']?$`)

// isAssigned reports whether what stands before a value says that it is a secret.
func isAssigned(before string) bool {
	return strings.ContainsAny(before, ":=") && assigned.MatchString(before)
}

// isMixed reports whether the letters of a text are capital and small ones by chance, as in a secret, and not as in
// words or names. What is as long as an image or a file has any short prefix in it somewhere.
func isMixed(s string) bool {
	capital, small := 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case 'A' <= c && c <= 'Z':
			capital++
		case 'a' <= c && c <= 'z':
			small++
		}
	}
	return 3*min(capital, small) >= capital+small && scan.Entropy(s) > 4
}

// isPlaceholder reports whether a value is, the whole of it, one that people write in place of a secret.
func isPlaceholder(s string) bool {
	return s == awsExample || few(s) || placeholder.MatchString(s)
}

const awsExample = "IOSFODNN7EXAMPLE" // the key that all of AWS's documentation has

var placeholder = regexp.MustCompile(`(?i)^([-_.=]|x+|1234(567890?)?|your|my|own|api|access|app|auth|bot|client|personal|private|key|token|secret|password|value|goes|here|insert|put|replace|with|this|change|me|example|placeholder|sample|dummy|fake|test|todo|redacted|github|gitlab|openai|notion|slack)+[0-9]{0,2}$`)

// few reports whether a text has less than four different characters.
func few(s string) bool {
	var seen [3]byte
	n := 0
	for i := range len(s) {
		if slices.Contains(seen[:n], s[i]) {
			continue
		}
		if n == len(seen) {
			return false
		}
		seen[n] = s[i]
		n++
	}
	return true
}

// isJWT reports whether a text is a token of RFC 7519, signed or not.
func isJWT(s string) bool {
	const least = 12
	if !strings.Contains(s, "eyJ") { // most texts: they are not split
		return false
	}
	parts := strings.Split(s, ".")
	for i := 0; i+2 < len(parts); i++ {
		k := strings.Index(parts[i], "eyJ")
		if k >= 0 && len(parts[i])-k >= least && strings.HasPrefix(parts[i+1], "eyJ") && len(parts[i+1]) >= least {
			return true
		}
	}
	return false
}

// secret notes one, of which only the beginning is shown. Of one that is short there is no digest: it could be found by
// guessing.
func (in *Inspection) secret(kind, value string, within []string) {
	shown, found := fmt.Sprintf("%s... (%d characters)", value[:min(4, len(value)/4)], len(value)), value
	if len(value) < minToken {
		found = ""
	}
	in.add("secret: "+kind, Severe, within, shown, found)
}

const (
	minBlob   = 64
	largeBlob = 512
)

// blobs notes what may be encrypted or compressed: nobody can say what is in it.
func (in *Inspection) blobs(text string, within []string) {
	for r := runsOf(text, isBase64, minBlob); r.next(); {
		run := r.run()
		if e := scan.Entropy(run); e > 5 || e > 3.7 && length(run, isHex) == len(run) {
			severity := Note
			if len(run) >= largeBlob {
				severity = Suspicious
			}
			if in.opened(run) {
				continue
			}
			in.add("blob", severity, within, fmt.Sprintf("%d characters with %.1f bits each", len(run), e), run)
		}
	}
}
