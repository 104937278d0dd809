package hub

import "maps"

// Watch adds a resource. It reports false if there are limit of them.
func (s *Subscriber) Watch(uri, server string, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.state.URIs[uri]; !ok && len(s.state.URIs) >= limit {
		return false
	}
	s.state.URIs[uri] = server
	return true
}

// Watching reports whether the client watches a resource.
func (s *Subscriber) Watching(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.state.URIs[uri]
	return ok
}

// Unwatch takes resources out.
func (s *Subscriber) Unwatch(uris ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uri := range uris {
		delete(s.state.URIs, uri)
	}
}

// Leave notes resources that the client no longer watches, and whose servers have not been told.
func (s *Subscriber) Leave(uris map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Kept == nil {
		s.state.Kept = make(map[string]string)
	}
	maps.Copy(s.state.Kept, uris)
}

// WatchedOf returns the resources of a server that the client watches, for all that the server may know.
func (s *Subscriber) WatchedOf(server string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for uri, of := range s.state.URIs {
		if of == server {
			list = append(list, uri)
		}
	}
	for uri, of := range s.state.Kept {
		if _, again := s.state.URIs[uri]; of == server && !again {
			list = append(list, uri)
		}
	}
	return list
}

// watches reports whether the client watches a server's resource, for all that the server may know.
func (s *Subscriber) watches(server, uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.URIs[uri] == server || s.state.Kept[uri] == server
}

// forget removes the resources of a server.
func (s *Subscriber) forget(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := func(_, of string) bool { return of == server }
	maps.DeleteFunc(s.state.URIs, of)
	maps.DeleteFunc(s.state.Kept, of)
}
