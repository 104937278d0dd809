package main

// stick takes it that the gateway is stuck, or no more if what it said first still counts: another gateway may say the
// same.
func (a *auditor) stick(was, now *string) {
	a.mu.Lock()
	if was != nil && a.stuck != was {
		a.mu.Unlock()
		return
	}
	a.stuck = now
	a.mu.Unlock()
	a.note("gateway", a.stuckWords())
}

// stuckWords says why the gateway can record nothing; "": it does not say so.
func (a *auditor) stuckWords() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stuck == nil {
		return ""
	}
	return *a.stuck
}
