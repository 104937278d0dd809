package registry

import "context"

// Next waits until another process of a server has come up than the one whose end is given, and reports false if the
// server is not to come up again, or ctx ends first.
func (r *Registry) Next(ctx context.Context, gone *Upstream) bool {
	for {
		r.mu.Lock()
		published, closed := r.published, r.closed
		s := r.Catalogue().find(gone.server.Name)
		r.mu.Unlock()
		switch {
		case s != nil && s.upstream != gone:
			return true
		case closed, gone.isStopped():
			return false
		}
		select {
		case <-published:
		case <-ctx.Done():
			return false
		}
	}
}
