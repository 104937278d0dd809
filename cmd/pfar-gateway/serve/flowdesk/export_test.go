package flowdesk

// FollowMost has a client follow as many runs as it may.
func FollowMost(d *Desk, client string) {
	for range mostFollowed {
		d.followed.take(client, mostFollowed)
	}
}
