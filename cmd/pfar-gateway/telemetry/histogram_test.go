package telemetry

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestBuckets: buckets follow one another without a gap, and each holds what it says.
func TestBuckets(t *testing.T) {
	for i := range buckets - 1 {
		from, to := lower(i), lower(i+1)
		if to <= from {
			t.Fatalf("bucket %d ends at %d, where it begins at %d", i, to, from)
		}
		if got := bucketOf(from); got != i {
			t.Errorf("%d ns, the least of bucket %d, is in bucket %d", from, i, got)
		}
		if got := bucketOf(to - 1); got != i {
			t.Errorf("%d ns, the most of bucket %d, is in bucket %d", to-1, i, got)
		}
		if middle := (from + to) / 2; i > 0 && float64(middle-from)/float64(from) > 1.0/32 {
			t.Errorf("bucket %d: its middle is %d, more than a 32nd away from %d", i, middle, from)
		}
	}
	for d, want := range map[time.Duration]int{-time.Second: 0, 0: 0, 1 << 37: buckets - 1, 1<<63 - 1: buckets - 1} {
		if got := bucketOf(d); got != want {
			t.Errorf("%d ns is in bucket %d, want %d", d, got, want)
		}
	}
}

func TestQuantile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	uniform := func() time.Duration { return time.Duration(random.Int64N(int64(time.Second))) + 100*time.Microsecond }
	skewed := func() time.Duration {
		return time.Duration(float64(200*time.Microsecond) * (1 + random.ExpFloat64()*50))
	}
	constant := func() time.Duration { return 3 * time.Millisecond }
	two := func() time.Duration {
		if random.IntN(100) == 0 {
			return 20 * time.Second
		}
		return time.Millisecond
	}
	for name, next := range map[string]func() time.Duration{"uniform": uniform, "skewed": skewed, "constant": constant, "two": two} {
		for _, n := range []int{1, 2, 10, 1000, 50_000} {
			var h histogram
			exact := make([]time.Duration, n)
			for i := range exact {
				exact[i] = next()
				h.add(exact[i])
			}
			slices.Sort(exact)
			most := exact[n-1]
			var d distribution
			for i := range d {
				d[i] = uint32(h.counts[i].Load())
			}
			for _, q := range []float64{0, 0.5, 0.95, 0.99, 1} {
				want := exact[max(0, int(q*float64(n)+0.9999999)-1)]
				got := d.quantile(q, most)
				if off := float64(got-want) / float64(want); off > 1.0/32 || off < -1.0/32 {
					t.Errorf("%s, %d values: quantile %v is %v, want %v, a 32nd more or less", name, n, q, got, want)
				}
			}
			if got := d.longest(most); got != most {
				t.Errorf("%s, %d values: the longest is %v, want %v", name, n, got, most)
			}
		}
	}
}

func TestQuantileOfTheEnds(t *testing.T) {
	var none distribution
	if none.quantile(0.5, time.Hour) != 0 || none.longest(time.Hour) != 0 {
		t.Error("of nothing there is a quantile")
	}
	var h distribution
	h[bucketOf(time.Hour)]++
	if got := h.quantile(0.99, time.Hour); got != time.Hour {
		t.Errorf("beyond the last bucket: %v, want what was measured", got)
	}
	h = distribution{1}
	if got := h.longest(time.Hour); got != 1024 {
		t.Errorf("the first bucket ends at %v", got)
	}
	if got := h.quantile(0.5, 7); got != 7 {
		t.Errorf("a quantile of %v is more than the longest", got)
	}
}
