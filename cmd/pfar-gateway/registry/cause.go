package registry

import (
	"errors"
	"fmt"
	"time"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/control"
)

// notReady is why a server is given up that takes too long to come up.
func notReady(within time.Duration) failure.Fact {
	return failure.Fact(fmt.Sprintf("it was not ready within %v", within))
}

// fact returns why a conversation has ended, as clients may have it. The error may quote the server, and that has
// passed no gate: its owner finds it in the status and the log.
func fact(why error) failure.Fact {
	if f, ok := errors.AsType[failure.Fact](why); ok {
		return f
	}
	switch failure.Of(why).Class {
	case failure.RateLimited:
		return "its service wants to be asked later"
	case failure.Unauthorized:
		return "its service does not accept its credentials"
	case failure.Forbidden:
		return "its service does not let it in"
	case failure.NotFound:
		return "its service does not have what pfar asks for"
	case failure.Timeout:
		return "it does not answer in time"
	case failure.ServerError:
		return "it answers with an error"
	case failure.NetworkError:
		return "it cannot be reached"
	case failure.TLS:
		return "its service does not prove who it is"
	case failure.Died:
		return "it has ended"
	}
	return "it does not keep to the protocol"
}

// refused returns why pfard has not started a process. What it says of a server that does not run may quote the server.
func refused(why error) failure.Fact {
	if r, ok := errors.AsType[*control.Refused](why); ok && r.Code != control.CodeDown {
		return failure.Fact(r.Message)
	}
	return "it cannot be started now, and pfar status says why"
}

// standing returns why a server does not run of which pfard says so.
func standing(in control.State) failure.Fact {
	switch in {
	case control.Stopped:
		return "it is stopped"
	case control.BackOff:
		return "it has crashed, and is started again in a moment"
	case control.Offline:
		return "it cannot be reached"
	}
	return "it has failed"
}
