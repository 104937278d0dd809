package failure

import (
	"fmt"
	"time"
)

// unsure follows the remedy of a request that may have changed something, and may have been carried out.
const unsure = ". It may have been carried out: look before you send it again"

// Told is the failure with its remedy, as a client gets it.
func (e *Error) Told() Told { return Told{e.Failure, e.remedy()} }

func (e *Error) remedy() string {
	if e.Advice != "" {
		return e.Advice
	}
	doubt := ""
	if e.Writes {
		doubt = unsure
	}
	switch e.Class {
	case RateLimited:
		return e.later()
	case Unauthorized:
		return fmt.Sprintf("the service does not accept the credentials of %s; its owner sees which: "+
			"pfar status %[1]s", e.Server)
	case Forbidden:
		return "the credentials of " + e.Server + " lack a right for this; its owner looks at their scopes at the service"
	case NotFound:
		return "look whether the name is right, and still there"
	case Timeout:
		return "try again, or raise timeout in the declaration of " + e.Server + doubt
	case ServerError:
		return fmt.Sprintf("%s; its owner sees its log: pfar logs %s%s", e.later(), e.Server, doubt)
	case NetworkError:
		return fmt.Sprintf("%s; its owner sees why: pfar status %s; and what it may reach, and was refused: "+
			"pfar egress %[2]s%[3]s",
			e.later(), e.Server, doubt)
	case TLS:
		return fmt.Sprintf("the host of %s does not prove who it is, and pfar does not go on; its owner looks at "+
			"url, tls_pins and allow_private in the declaration: pfar explain %[1]s", e.Server)
	case Schema:
		return "the server is at fault, and the same request fails again; its owner looks for another version: " +
			"pfar upgrade " + e.Server + doubt
	case Died:
		return fmt.Sprintf("its owner sees why: pfar logs %s; and starts it: pfar start %[1]s%s", e.Server, doubt)
	}
	return ""
}

// later says when to try again.
func (e *Error) later() string {
	if e.After == 0 {
		return "try again later"
	}
	return "try again in " + Short(e.After)
}

// Short is a number of seconds in words.
func Short(seconds int64) string {
	if seconds < 120 {
		return fmt.Sprintf("%d s", seconds)
	}
	if d := time.Duration(seconds) * time.Second; d < 2*time.Hour {
		return fmt.Sprintf("%d min", int64((d+time.Minute-1)/time.Minute))
	}
	return fmt.Sprintf("%d h", (seconds+3599)/3600)
}
