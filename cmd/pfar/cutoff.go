package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/units/control"
)

// cutOff reports whether pfard ended before it answered: then it may have done what it was asked, or not.
func cutOff(err error) bool {
	for _, is := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, control.ErrNotRunning} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// unchanged is the error of what a command asks pfard before it has anything changed. It leaves one that has a hint of
// its own, and that of a pfard which was not there at all.
func unchanged(err error) error {
	f, hinted := errors.AsType[*failure](err)
	if !cutOff(err) || errors.Is(err, control.ErrNotRunning) || hinted && f.hint != "" {
		return err
	}
	code, _ := classify(err)
	return fail(code, "%w", err).withHint("nothing was changed; the same command tries again")
}

// noVersion is the error of a question for the newest version of a package.
func noVersion(named string, err error) error {
	code, _ := classify(err)
	hint := "nothing was changed; the same command tries again, or name a version of " + named
	if cutOff(err) {
		hint = "nothing was changed; the same command tries again once pfard runs"
	}
	return fail(code, "%w", err).withHint("%s", hint)
}

// rewrite is what a command wants of a declaration: the digests of its file before and after, "" for no file. If pfard
// makes the text, wanted is anyText.
type rewrite struct{ file, was, wanted string }

const anyText = "any"

// outcome reads the file and says which of the two it has. A command says so when pfard cannot answer.
func (r rewrite) outcome() string {
	text, err := os.ReadFile(r.file)
	now, file := control.DigestOf(text), escape(r.file, oneLine)
	gone := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !gone || r.file == "":
		return "pfar status says whether it was changed"
	case gone && r.wanted == "":
		return file + " was removed"
	case gone:
		return file + " was not written"
	case r.was == "" && (now == r.wanted || r.wanted == anyText):
		return file + " was written"
	case now == r.was && r.wanted == "":
		return file + " was not removed"
	case now == r.was:
		return file + " was not changed"
	case now == r.wanted:
		return file + " was changed"
	}
	return file + " has another text: something else changed it"
}

// outcomeOf says whether a package is there, when installing it has failed or pfard cannot answer.
func (c packageVerb) outcomeOf(text string) string {
	p, err := source.ParseExact(text)
	if err == nil {
		_, err = os.Stat(filepath.Join(c.dirs.Packages(), string(p.Kind), p.Name, p.Version, "record.json"))
	}
	switch {
	case err == nil:
		return "the package was installed"
	case errors.Is(err, fs.ErrNotExist):
		return "the package was not installed"
	}
	return fmt.Sprintf("pfar install %s says whether it is there", escape(text, oneLine))
}
