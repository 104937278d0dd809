package visible

import "fmt"

// Size returns a number of bytes in the largest unit that fits: "1.5 MiB".
func Size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", max(n, 0))
	}
	f, unit := float64(n)/(1<<10), 0
	for f >= 1023.5 && unit < 3 {
		f, unit = f/(1<<10), unit+1
	}
	name := [...]string{"KiB", "MiB", "GiB", "TiB"}[unit]
	if f < 9.95 {
		return fmt.Sprintf("%.1f %s", f, name)
	}
	return fmt.Sprintf("%.0f %s", f, name)
}
