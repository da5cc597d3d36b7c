package rabbitmq_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfastq/holdfast/workshop/slow"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(presenceVariable); name != "" {
		if err := holdPresence(name); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	slow.Checks(30, 100)
	goleak.VerifyTestMain(m)
}
