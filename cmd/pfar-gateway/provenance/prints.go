package provenance

import "github.com/pfar/pfar/policies/gate"

// prints are fingerprints, each with how secret the most secret text is that it is of. It is a table with open
// addressing: a lookup costs one line of memory as a rule.
type prints struct {
	slots []uint64 // a fingerprint whose last bits are how secret it is; 0: nothing
	marks []uint64 // 8 bits for each slot. Each fingerprint sets one, so most are 0
	count int
	most  gate.Confidentiality // of all
}

// secrecy is the bits of a slot that say how secret.
const secrecy = 7

func (p *prints) size() int { return 8 * (len(p.slots) + len(p.marks)) }

// place is where a fingerprint is, or where it belongs.
func (p *prints) place(f uint64) int {
	mask := uint64(len(p.slots) - 1)
	for i := f >> 3 & mask; ; i = (i + 1) & mask {
		if at := p.slots[i]; at == 0 || (at^f)&^secrecy == 0 {
			return int(i)
		}
	}
}

// any reports whether one of some fingerprints is of a text that is more secret than an audience.
func (p *prints) any(of []uint64, audience gate.Confidentiality) bool {
	if p.count == 0 {
		return false
	}
	slots, mask := p.slots, uint64(len(p.slots)-1)
	marks, last := p.marks, uint64(len(p.marks)-1)
	for _, f := range of {
		if marks[f>>9&last]>>(f>>3&63)&1 == 0 { // nearly always, so the processor predicts it; it cannot predict slots
			continue
		}
		for i := f >> 3; ; i++ { // as place
			at := slots[i&mask]
			if at == 0 {
				break
			}
			if (at^f)&^secrecy == 0 {
				if gate.Confidentiality(at&secrecy) > audience {
					return true
				}
				break
			}
		}
	}
	return false
}

// add adds a fingerprint, and reports false if there are as many as there may be.
func (p *prints) add(f uint64, is gate.Confidentiality, most int) bool {
	if p.count*2 >= len(p.slots) {
		if p.count >= most {
			return false
		}
		p.grow()
	}
	at := &p.slots[p.place(f)]
	if *at == 0 {
		p.count++
		p.mark(f)
	}
	*at = f&^secrecy | max(*at&secrecy, uint64(is))
	p.most = max(p.most, is)
	return true
}

func (p *prints) grow() {
	old := p.slots
	p.slots = make([]uint64, max(1<<10, 2*len(old)))
	p.marks = make([]uint64, len(p.slots)/8)
	for _, f := range old {
		if f != 0 {
			p.slots[p.place(f)] = f
			p.mark(f)
		}
	}
}

// mark sets the bit of a fingerprint.
func (p *prints) mark(f uint64) { p.marks[f>>9&uint64(len(p.marks)-1)] |= 1 << (f >> 3 & 63) }
