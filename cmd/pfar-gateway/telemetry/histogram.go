package telemetry

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// A histogram has sixteen buckets of equal width for each power of two of nanoseconds, so that what it says of a
// duration is wrong by a 32nd at most, from 1 microsecond to 137 seconds. HdrHistogram works alike; this one has a
// fixed size, and adding to it is one atomic addition.
const (
	subBits  = 4
	sub      = 1 << subBits
	leastExp = 10 // below 2^10 ns is the first bucket
	mostExp  = 36 // from 2^37 ns on is the last one
	buckets  = 2 + (mostExp-leastExp+1)*sub
)

type histogram struct{ counts [buckets]atomic.Uint64 }

func (h *histogram) add(d time.Duration) { h.counts[bucketOf(d)].Add(1) }

func bucketOf(d time.Duration) int {
	v := uint64(max(0, d))
	exp := bits.Len64(v) - 1
	switch {
	case exp < leastExp:
		return 0
	case exp > mostExp:
		return buckets - 1
	}
	return 1 + (exp-leastExp)*sub + int(v>>(exp-subBits))&(sub-1)
}

// lower returns the least duration that bucket i holds.
func lower(i int) time.Duration {
	switch i {
	case 0:
		return 0
	case buckets - 1:
		return 1 << (mostExp + 1)
	}
	exp, part := leastExp+(i-1)/sub, (i-1)%sub
	return time.Duration((sub + part) << (exp - subBits))
}

// distribution is what a histogram held at one time, or between two.
type distribution [buckets]uint32

// quantile returns the duration that a share q of all calls did not exceed, and 0 if there was none. most is the
// longest that there was: no answer is longer.
func (d *distribution) quantile(q float64, most time.Duration) time.Duration {
	var all uint64
	for _, n := range d {
		all += uint64(n)
	}
	if all == 0 {
		return 0
	}
	rank := max(1, uint64(math.Ceil(q*float64(all))))
	var below uint64
	for i, n := range d {
		if below += uint64(n); below < rank {
			continue
		}
		if i == buckets-1 {
			return most
		}
		return min(most, (lower(i)+lower(i+1))/2)
	}
	return most
}

// longest returns the end of the last bucket that is not empty, at most most, and 0 if all are.
func (d *distribution) longest(most time.Duration) time.Duration {
	for i := buckets - 1; i >= 0; i-- {
		switch {
		case d[i] == 0:
		case i == buckets-1:
			return most
		default:
			return min(most, lower(i+1))
		}
	}
	return 0
}
