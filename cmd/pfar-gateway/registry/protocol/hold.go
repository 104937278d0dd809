package protocol

import "sync/atomic"

// hold counts the requests for a server, which takes none while it rests. It has no lock, for every call passes it.
type hold struct {
	n     atomic.Int64           // requests, and rests
	freed atomic.Pointer[func()] // called when there are none any more; nil: nobody waits for that
}

// rests is set in hold.n of a server that is about to sleep, or stands for one that does.
const rests = 1 << 62

// take begins a request. It reports false if the server rests.
func (h *hold) take() bool {
	if h.n.Add(1)&rests != 0 {
		h.n.Add(-1)
		return false
	}
	return true
}

// give ends a request.
func (h *hold) give() {
	if h.n.Add(-1) != 0 {
		return
	}
	if f := h.freed.Load(); f != nil {
		go (*f)()
	}
}

// whenFree has f called when a request ends and no other is under way; nil: nothing.
func (h *hold) whenFree(f func()) {
	if f == nil {
		h.freed.Store(nil)
		return
	}
	h.freed.Store(&f)
}

// rest has the server take no requests any more. It reports false if one is under way.
func (h *hold) rest() bool { return h.n.CompareAndSwap(0, rests) || h.resting() }

// wake ends that.
func (h *hold) wake() { h.n.And(^int64(rests)) }

func (h *hold) resting() bool { return h.n.Load()&rests != 0 }

func (h *hold) held() bool { return h.n.Load()&^rests > 0 }
