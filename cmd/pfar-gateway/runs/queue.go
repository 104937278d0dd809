package runs

import "slices"

// queue says which run goes on next: of the clients that have runs ready, each in its turn. One run of a client always
// may, however many others have taken, for a call may take an hour: backoff waits that long. It is not safe for
// concurrent use.
type queue struct {
	bound   Bound
	all     int            // that have been taken and not been freed
	taken   map[string]int // the same, by client
	ready   map[string][]place
	clients []string // that have runs ready; the first is the next
}

// place is that of a run in the queue.
type place struct {
	id    string
	asked bool // the call that it is at has waited for an approval, which has been answered
}

func newQueue(bound Bound) queue {
	return queue{bound: bound, taken: make(map[string]int), ready: make(map[string][]place)}
}

func (q *queue) add(client string, p place) {
	if len(q.ready[client]) == 0 {
		q.clients = append(q.clients, client)
	}
	q.ready[client] = append(q.ready[client], p)
}

// take takes the next run out of the queue. It returns false if there is none that may go on.
func (q *queue) take() (client string, p place, ok bool) {
	i := slices.IndexFunc(q.clients, func(c string) bool {
		n := q.taken[c]
		return n == 0 || n < q.bound.Client && q.all < q.bound.All
	})
	if i < 0 {
		return "", place{}, false
	}
	client = q.clients[i]
	q.clients = slices.Delete(q.clients, i, i+1)
	p = q.ready[client][0]
	if q.ready[client] = q.ready[client][1:]; len(q.ready[client]) == 0 {
		delete(q.ready, client)
	} else {
		q.clients = append(q.clients, client)
	}
	q.all++
	q.taken[client]++
	return client, p, true
}

// free says that a run that was taken is not called for any more.
func (q *queue) free(client string) {
	q.all--
	if q.taken[client]--; q.taken[client] == 0 {
		delete(q.taken, client)
	}
}
