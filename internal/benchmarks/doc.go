// Package benchmarks measures throughput and memory on real servers. Each role runs as a
// process of its own, this test binary started again, so that its memory is its own.
//
//	make microbench
package benchmarks
