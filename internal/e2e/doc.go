// Package e2e tests the whole system on real servers. The tests run the real program as processes and the real library
// in the test process. They inject faults, and count what the targets receive.
package e2e
