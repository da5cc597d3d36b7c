package rabbitmq_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfastq/holdfast/internal/slow"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(signVariable); name != "" {
		if err := showForEver(name); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	slow.Checks(30, 100)
	goleak.VerifyTestMain(m)
}
