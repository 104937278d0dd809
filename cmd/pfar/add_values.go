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
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/setup"
)

// secretValues reads the secrets that a set-up waits for.
type secretValues struct {
	*adding
	files  map[string]string // by key of the vault, those that were not read yet
	piped  bool              // standard input has been read
	shown  map[string]bool   // keys whose origin was told
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
		return v.secret(ctx, w.Key, file)
	}
	switch refused := now.State == control.CredentialRefused; {
	case person:
		v.explain(now)
		return v.prompt(ctx, w)
	case refused:
		return answer{err: fail(exitFailed, "the service refuses the value: %s", now.Detail)}
	case !v.piped:
		v.piped = true
		if a := v.secret(ctx, w.Key, ""); a.err == nil || !w.Optional {
			return a
		}
	case !w.Optional:
		return answer{err: fail(exitFailed, "the set-up needs %s; give it with --secret-file %[1]s=FILE", w.Key)}
	}
	return answer{skip: true}
}

// secret reads a value from a file or from standard input.
func (v *secretValues) secret(ctx context.Context, key, file string) answer {
	b, err := vaultVerb{v.pfar}.readSecret(ctx, key, file)
	return answer{value: string(b), err: err}
}

// prompt asks the person at the terminal, until there is an answer.
func (v *secretValues) prompt(ctx context.Context, w control.Wanted) answer {
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
		a := v.secret(ctx, w.Key, file)
		if a.err == nil || ctx.Err() != nil || errors.Is(a.err, io.EOF) {
			return a
		}
		v.complain(a.err)
	}
}

// explain says why a value is asked for, and how a person gets one.
func (v *secretValues) explain(now control.Flow) {
	w := *now.Wants
	p := page{columns: columnsOf(v.stderr)}
	if now.State == control.CredentialRefused && now.Attempts > 0 {
		p.WriteString("\n")
		p.line("", escape(fmt.Sprintf("The service refuses the value (%d of %d): %s", now.Attempts, setup.MaxRefused,
			now.Detail), oneLine))
	}
	if !v.shown[w.Key] {
		v.shown[w.Key] = true
		p.WriteString("\n")
		for _, s := range sentences(catalog.Secret{Where: w.Where, Scopes: w.Scopes, Optional: w.Optional}) {
			if s != "" {
				p.words(escape(s, oneLine))
			}
		}
		if w.URL != "" {
			p.line("  ", escape(w.URL, oneLine))
		}
		if len(w.Prefixes) > 0 {
			p.words(escape("It begins with "+either(w.Prefixes)+".", oneLine))
		}
		words := `Enter "cancel" to end the set-up.`
		if w.Optional {
			words = `Enter "skip" to leave it out, "cancel" to end the set-up.`
		}
		p.words(words)
	}
	fmt.Fprint(v.stderr, p.String())
}

// either joins words as a sentence does.
func either(words []string) string {
	words = slices.Sorted(slices.Values(words))
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
