package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/setup"
)

// secretValues reads the secrets that a set-up waits for.
type secretValues struct {
	*adding
	files  map[string]string // by key of the vault, not read yet
	piped  bool              // standard input has been read
	shown  map[string]bool   // keys that were explained
	inFile map[string]bool   // keys of secrets that are whole files
}

func newSecretValues(a *adding) *secretValues {
	v := &secretValues{adding: a, files: map[string]string{}, shown: map[string]bool{}, inFile: map[string]bool{}}
	for key, file := range a.secrets {
		v.files[key] = file
	}
	for _, k := range a.service.Secrets {
		v.inFile[k.Key] = k.Deliver == broker.InFile
	}
	return v
}

// given reports whether a file has the value of a key that was not read yet.
func (v *secretValues) given(key string) bool {
	_, has := v.files[key]
	return has
}

// read gets the value that a set-up waits for: from a file, once, else from the person at the terminal, else from
// standard input, once.
func (v *secretValues) read(ctx context.Context, now control.Flow) answer {
	w := *now.Wants
	person := isTerminal(v.stdin)
	if file, ok := v.files[w.Key]; ok {
		delete(v.files, w.Key)
		if file == "" || file == "-" {
			v.piped = true
		}
		return v.secret(ctx, valueOf(w.Key), file)
	}
	switch refused := now.State == control.CredentialRefused; {
	case person:
		v.explain(now)
		return v.prompt(ctx, w)
	case refused:
		what := "the service refuses the value"
		if now.Reason == control.FlowNotStarted {
			what = now.Server + " did not start with the value"
		}
		return answer{err: fail(exitFailed, "%s: %s", what, now.Detail)}
	case !v.piped:
		v.piped = true
		a := v.secret(ctx, valueOf(w.Key), "")
		if errors.Is(a.err, errEmptySecret) && len(w.Ways) > 0 {
			a.err = errors.New("no value was given, and without a terminal nobody can sign in")
		}
		if a.err == nil || !w.Optional {
			return a
		}
	case !w.Optional:
		return answer{err: fail(exitFailed, "the set-up needs %s; give it with --secret-file %[1]s=FILE", w.Key)}
	}
	return answer{skip: true}
}

// secret reads a value from a file or from standard input.
func (v *secretValues) secret(ctx context.Context, question, file string) answer {
	b, err := vaultVerb{v.pfar}.readSecret(ctx, question, file)
	return answer{value: string(b), err: err}
}

// prompt asks the person at the terminal, until there is an answer.
func (v *secretValues) prompt(ctx context.Context, w control.Wanted) answer {
	question, signs := valueOf(w.Key), len(w.Ways) > 0 && !v.inFile[w.Key]
	for {
		file := ""
		if v.inFile[w.Key] {
			path, err := v.askLine(ctx, fmt.Sprintf("File with %q:", w.Key))
			switch {
			case err != nil:
				return answer{err: err}
			case path == "":
				continue
			case setup.Cancels(path): // pfard understands it
				return answer{value: path}
			}
			file = path
		}
		asked := question
		if signs {
			asked += ", or Enter to sign in"
		}
		a := v.secret(ctx, asked, file)
		if signs && a.err == nil && strings.TrimSpace(a.value) == "paste" {
			signs = false
			continue
		}
		if signs {
			a = chosen(w.Ways, a)
		}
		if a.err == nil || ctx.Err() != nil || errors.Is(a.err, io.EOF) {
			return a
		}
		v.tellFault(a.err)
	}
}

// chosen interprets an answer where the person may sign in instead.
func chosen(ways []string, a answer) answer {
	word := strings.TrimSpace(a.value)
	way, named := map[string]oauth.Way{
		"device": oauth.ByDevice, "code": oauth.ByCode, "browser": oauth.ByCode, // as flags and as oauth.d call it
	}[word]
	switch {
	case errors.Is(a.err, errEmptySecret):
		return answer{way: firstWay(ways)}
	case a.err != nil || !named:
		return a
	case !slices.Contains(ways, string(way)): // the word is no secret either
		return answer{err: fmt.Errorf("no sign-in with %q is configured; pfar-oauth(5) says how", word)}
	}
	return answer{way: way}
}

// firstWay is the sign-in that is offered first: it needs no browser on this machine.
func firstWay(ways []string) oauth.Way {
	if slices.Contains(ways, string(oauth.ByDevice)) {
		return oauth.ByDevice
	}
	return oauth.ByCode
}

// signInWords say how a person may sign in.
func signInWords(ways []string) string {
	const device, browser = "sign in with a code on any device", "sign in with a browser on this machine"
	switch {
	case firstWay(ways) == oauth.ByCode:
		return "Press Enter to " + browser + ", or paste a token."
	case slices.Contains(ways, string(oauth.ByCode)):
		return "Press Enter to " + device + `, enter "browser" to ` + browser + ", or paste a token."
	}
	return "Press Enter to " + device + ", or paste a token."
}

// explain says why a value is asked for, and how a person gets one.
func (v *secretValues) explain(now control.Flow) { fmt.Fprint(v.stderr, v.explanation(now)) }

func (v *secretValues) explanation(now control.Flow) string {
	w := *now.Wants
	p := page{columns: columnsOf(v.stderr)}
	if now.State == control.CredentialRefused && now.Attempts > 0 {
		p.WriteString("\n")
		words, detail := "The service refuses the value (%d of %d).", " The server says:"
		if now.Reason == control.FlowNotStarted {
			words, detail = "The server did not start with this value (%d of %d).", ""
		}
		words = fmt.Sprintf(words, now.Attempts, setup.MaxRefused)
		if now.Detail == "" {
			p.words(words)
		} else {
			p.words(words + detail)
			p.line("  ", escape(now.Detail, oneLine))
		}
	}
	if !v.shown[w.Key] {
		v.shown[w.Key] = true
		p.WriteString("\n")
		for _, s := range sentences(catalog.Secret{Where: w.Where, Scopes: w.Scopes, Optional: w.Optional}) {
			p.words(escape(s, oneLine))
		}
		if w.URL != "" {
			p.line("  ", escape(w.URL, oneLine))
		}
		if len(w.Prefixes) > 0 {
			p.words(escape("It begins with "+either(w.Prefixes)+".", oneLine))
		}
		if len(w.Ways) > 0 && !v.inFile[w.Key] {
			p.words(signInWords(w.Ways))
		}
		words := `Enter "cancel" to end the set-up.`
		if w.Optional {
			words = `Enter "skip" to leave it out, "cancel" to end the set-up.`
		}
		p.words(words)
	}
	return p.trimmed()
}

// either joins words as a sentence does.
func either(words []string) string {
	words = slices.Sorted(slices.Values(words))
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
