package main

import (
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/workshop/exampletest"
)

// Of three subscribers one fails now and then, and one refuses everything until it is repaired. The others get each
// event once, and the messages of the last one wait.
func TestMessagesOfABrokenSubscriberWaitForAPerson(t *testing.T) {
	t.Parallel()
	exampletest.Run(t, func(t *testing.T, printed, _ string) {
		before, after, _ := strings.Cut(printed, "a person retries its messages\n")
		for part, lines := range map[string][]string{
			before: {
				"20 events, each published twice: 20 stored\n",
				"  billing   20 messages in ", "  stock     20 messages in ", "  mail       0 messages in ",
				"20 messages are dead and wait for a person; one of them:\n", ": 401 Unauthorized\n",
			},
			after: {
				"  billing   20 messages in ", "  stock     20 messages in ", "  mail      20 messages in ", "\n0 messages are dead\n",
			},
		} {
			for _, line := range lines {
				if !strings.Contains(part, line) {
					t.Errorf("the output has no %q:\n%s", line, printed)
				}
			}
		}
	})
}
