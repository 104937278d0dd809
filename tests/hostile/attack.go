package main

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
)

// attack is one thing that a server must not be able to do. Kind groups attacks by their aim.
type attack struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Target string `json:"target,omitempty"` // what the target is; "": none is needed

	inServer bool // it is the server's own process that is in question
	try      func(target string) verdict
}

type list []attack

// all returns every attack. inherited is what was open when the process began.
func all(inherited []string) list {
	return slices.Concat(fileAttacks(), networkAttacks(), kernelAttacks(), namespaceAttacks(), privilegeAttacks(),
		machineAttacks(), processAttacks(inherited), resourceAttacks(), secretAttacks(), inodeAttacks())
}

func (l list) find(name string) *attack {
	if i := slices.IndexFunc(l, func(a attack) bool { return a.Name == name }); i >= 0 {
		return &l[i]
	}
	return nil
}

// verdict is what came of a try. The zero value is "not blocked".
type verdict struct {
	blocked bool
	detail  string
	err     string
}

func blocked(format string, args ...any) verdict {
	return verdict{blocked: true, detail: fmt.Sprintf(format, args...)}
}

func succeeded(format string, args ...any) verdict {
	return verdict{detail: fmt.Sprintf(format, args...)}
}

func impossible(err error) verdict { return verdict{err: err.Error()} }

// outcome takes any error for a block.
func outcome(err error) verdict {
	if err != nil {
		return blocked("%v", err)
	}
	return succeeded("done")
}

// reached takes only a refusal for a block: with any other error the kernel had begun to look at what was asked,
// which is further than a sandbox should let it come.
func reached(err error) verdict {
	for _, refusal := range []syscall.Errno{syscall.EPERM, syscall.EACCES, syscall.ENOSYS} {
		if errors.Is(err, refusal) {
			return blocked("%v", err)
		}
	}
	if err != nil {
		return succeeded("came as far as: %v", err)
	}
	return succeeded("done")
}

// errno turns a system call's result into an error.
func errno(e syscall.Errno) error {
	if e != 0 {
		return e
	}
	return nil
}
