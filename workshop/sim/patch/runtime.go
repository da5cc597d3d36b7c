package patch

import "math/rand/v2"

// first is the first random number of every synctest bubble with the edited runtime.
const first = 0xe220a8397b1dcdaf

// Active reports whether the running program has the edited runtime. The caller must call it before anything else in a
// synctest bubble. Active takes one random number.
func Active() bool { return rand.Uint64() == first }

// Deterministic returns edits that make the goroutines of a testing/synctest bubble run in the same order every time.
// This requires that GOMAXPROCS is 1 and that no garbage is collected meanwhile.
//
// With the edits, every bubble has its own random numbers, which always start with the same number. They decide the
// choices of select, the order of timers due at the same time, and math/rand. The order of a map depends only on its
// contents. A context cancels its children in the order in which they were made. Hashes are the same in every process.
// The runtime does not preempt a goroutine because it has run for long, and no mutex goes to a goroutine because it has
// waited for long. Up to 2048 runnable goroutines wait in one queue, in the order in which they became runnable.
//
// The edits are for Go 1.26. If a later release differs, Build reports the edit that does not match.
func Deterministic() []Edit {
	return []Edit{
		{goroot + "runtime/synctest.go", "type synctestBubble struct {\n", `// nextRand is every random number of a bubble: splitmix64 (Steele, Lea, Flood, 2014).
//
//go:nosplit
func (b *synctestBubble) nextRand() uint64 {
	b.rand += 0x9e3779b97f4a7c15
	z := b.rand
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

type synctestBubble struct {
	rand uint64
`},
		// Maps get their random numbers here. Caches create maps on first use, which may be in any simulation.
		// Therefore the number is constant, and does not use up a number of the bubble.
		{goroot + "runtime/rand.go", "\tmp := getg().m\n\tc := &mp.chacha8\n", `	if getg().bubble != nil {
		return 0x9e3779b97f4a7c15
	}
	mp := getg().m
	c := &mp.chacha8
`},
		{goroot + "runtime/rand.go", "// rand32 is uint32(rand())", `// bubbleRand is rand for package math/rand.
//
//go:linkname bubbleRand
func bubbleRand() uint64 {
	if b := getg().bubble; b != nil {
		return b.nextRand()
	}
	return rand()
}

// rand32 is uint32(rand())`},
		{goroot + "math/rand/rand.go", "//go:linkname runtime_rand runtime.rand\n", "//go:linkname runtime_rand runtime.bubbleRand\n"},
		{goroot + "math/rand/v2/rand.go", "//go:linkname runtime_rand runtime.rand\n", "//go:linkname runtime_rand runtime.bubbleRand\n"},
		{goroot + "runtime/rand.go", "\tglobalRand.state.Init(*seed)\n", "\t*seed = [32]byte{1}\n\tglobalRand.state.Init(*seed)\n"},
		{goroot + "runtime/select.go", "\t\tj := cheaprandn(uint32(norder + 1))\n", `		j := cheaprandn(uint32(norder + 1))
		if gp.bubble != nil {
			j = uint32(gp.bubble.nextRand()>>33) % uint32(norder+1)
		}
`},
		{goroot + "runtime/time.go", "t.rand = cheaprand()", "t.rand = uint32(getg().bubble.nextRand() >> 32)"},
		// Otherwise the first bubble to use the map would draw its seed.
		{goroot + "internal/sync/hashtriemap.go", "ht.seed = uintptr(runtime_rand())", "ht.seed = 1"},
		// A context cancels its children in the order in which they were made. The order of a map of pointers depends
		// on addresses, which differ from process to process and depend on earlier simulations.
		{goroot + "context/context.go", "\tchildren map[canceler]struct{} // set to nil", "\tborn     uint64 // number of the youngest child\n\tchildren map[canceler]uint64 // set to nil"},
		{goroot + "context/context.go", "p.children = make(map[canceler]struct{})", "p.children = make(map[canceler]uint64)"},
		{goroot + "context/context.go", "\t\t\tp.children[child] = struct{}{}\n", "\t\t\tp.born++\n\t\t\tp.children[child] = p.born\n"},
		{goroot + "context/context.go", "\tfor child := range c.children {\n", `	for len(c.children) > 0 {
		var child canceler
		oldest := ^uint64(0)
		for candidate, number := range c.children {
			if number < oldest {
				child, oldest = candidate, number
			}
		}
		delete(c.children, child)
`},
		// Many goroutines can be runnable at once. If the queue of the processor overflows, they go to the global
		// queue, and their order depends on background goroutines of the runtime, such as the scavenger.
		{goroot + "runtime/runtime2.go", "\trunq     [256]guintptr\n", "\trunq     [2048]guintptr\n"},
		{goroot + "runtime/proc.go", "batch *[256]guintptr", "batch *[2048]guintptr"},
		// A goroutine that has waited for a mutex for a real millisecond would get it before others.
		{goroot + "internal/sync/mutex.go", "\tstarvationThresholdNs = 1e6\n", "\tstarvationThresholdNs = 1e15\n"},
		{goroot + "runtime/proc.go", "const forcePreemptNS = 10 * 1000 * 1000", "const forcePreemptNS = 1000 * 1000 * 1000 * 1000"},
	}
}
