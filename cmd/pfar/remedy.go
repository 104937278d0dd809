package main

import (
	"fmt"

	"github.com/pfar/pfar/units/control"
)

// reachable reports whether a call gets to a server: one that sleeps is started by it.
func reachable(s control.Server) bool {
	return s.State.Up() || s.State == control.Sleeping
}

// remedy says what makes a server run that does not.
func remedy(s control.Server) string {
	switch s.State {
	case control.Stopped:
		switch s.Off {
		case control.OffByFile:
			return "set enabled = true in " + s.File
		case control.OffByOperator:
			return "pfar enable " + s.Name
		}
		return "pfar start " + s.Name
	case control.Sleeping:
		return "pfar start " + s.Name
	case control.Waiting, control.NeedsLogin:
		if s.Remedy.Act != "" {
			return s.Remedy.Command
		}
		return fmt.Sprintf("pfar status %s says what it waits for; give it to pfar up", s.Name)
	case control.CredentialInvalid:
		if s.Verification.Remedy.Act != "" {
			return s.Verification.Remedy.Command
		}
		return "pfar status " + s.Name
	case control.Offline:
		return fmt.Sprintf("pfar restart %s tries at once", s.Name)
	case control.Failed:
		if s.Broken {
			return "pfar check says what to write in " + s.File
		}
		return fmt.Sprintf("pfar logs %s says why, pfar start %s tries again", s.Name, s.Name)
	}
	return "pfar logs " + s.Name
}
