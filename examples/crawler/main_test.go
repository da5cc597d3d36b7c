package main

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/holdfastq/holdfast/workshop/exampletest"
)

// Each page of three sites is fetched once, and not before its Retry-After. The pages of a large site do not delay those
// of the small ones.
func TestEveryPageIsFetchedOnce(t *testing.T) {
	t.Parallel()
	exampletest.Run(t, func(t *testing.T, printed, _ string) {
		for _, want := range []string{
			`shop.example: 402 pages, 0 of them twice; the front page was number \d+\n  442 requests in .* s; 503 for 40 of them, 0 came before Retry-After\n`,
			`blog.example: 22 pages, 0 of them twice; the front page was number \d+\n  22 requests in .* s; 503 for 0 of them, 0 came before Retry-After\n`,
			`docs.example: 22 pages, 0 of them twice; the front page was number \d+\n  22 requests in .* s; 503 for 0 of them, 0 came before Retry-After\n`,
		} {
			if !regexp.MustCompile(want).MatchString(printed) {
				t.Errorf("the output does not match %q:\n%s", want, printed)
			}
		}
		if front := number(t, printed, `shop.example: .*the front page was number (\d+)`); front > 200 {
			t.Errorf("the front page was number %g:\n%s", front, printed)
		}
		for _, small := range []string{"blog", "docs"} {
			if left := number(t, printed, small+`.example: [^!]*?had (\d+) pages left`); left < 150 {
				t.Errorf("%s was complete when the large site had %g pages left:\n%s", small, left, printed)
			}
		}
	})
}

// A site gets no more requests than the limit allows.
func TestALimitBoundsTheRate(t *testing.T) {
	t.Parallel()
	exampletest.Run(t, func(t *testing.T, printed, _ string) {
		// 57 requests at 10 in a second take 5.7 seconds, and a limit allows those of one second more. Without a limit
		// they take two or three seconds, if nothing else uses the machine.
		if took := number(t, printed, `57 requests in (\S+) s`); took < 4 {
			t.Errorf("the requests took %g s:\n%s", took, printed)
		}
	}, "-pages", "50", "-rate", "10")
}

// number returns the number that a group of a pattern matches.
func number(t *testing.T, printed, pattern string) float64 {
	t.Helper()
	match := regexp.MustCompile(pattern).FindStringSubmatch(printed)
	if match == nil {
		t.Fatalf("the output does not match %q:\n%s", pattern, printed)
	}
	n, err := strconv.ParseFloat(match[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
