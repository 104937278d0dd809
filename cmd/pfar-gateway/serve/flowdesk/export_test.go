package flowdesk

// Busy takes all places of one kind of a client's orders: of those that ask models, or of those that read. free gives
// them back.
func Busy(d *Desk, client string, asking bool) (free func()) {
	all, most := &d.reading, mostRead
	if asking {
		all, most = &d.asking, mostAsked
	}
	var taken []func()
	for range most {
		one, _ := all.take(client, most)
		taken = append(taken, one)
	}
	return func() {
		for _, one := range taken {
			one()
		}
	}
}

// FollowMost has a client follow as many runs as it may.
func FollowMost(d *Desk, client string) {
	for range mostFollowed {
		d.followed.take(client, mostFollowed)
	}
}
