package garbage

import (
	"errors"
	"fmt"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// errNoCapacity has the kubelet's words.
var errNoCapacity = errors.New("invalid capacity 0 on image filesystem")

// space is how full the disk with the images is.
type space struct {
	capacity int64
	percent  int
	// excess is how many bytes the disk has to lose to come down to the low threshold. It is
	// negative below it.
	excess int64
}

// fullness computes how full a disk is, as a kubelet does.
func fullness(fs *statsapi.FsStats, p Policy) (space, error) {
	var capacity, available int64
	if fs.CapacityBytes != nil {
		capacity = int64(*fs.CapacityBytes)
	}
	if fs.AvailableBytes != nil {
		available = int64(*fs.AvailableBytes)
	}
	if capacity == 0 {
		return space{}, errNoCapacity
	}
	available = min(available, capacity)
	return space{
		capacity: capacity,
		percent:  100 - int(available*100/capacity),
		excess:   capacity*int64(100-p.Low)/100 - available,
	}, nil
}

// sizeOf returns the sum of the images' sizes in bytes.
func sizeOf(images []Image) int64 {
	var sum int64
	for _, i := range images {
		sum += int64(i.GetSize())
	}
	return sum
}

// formatSize formats a number of bytes as the kubelet's message does.
func formatSize(bytes int64) string {
	value, units := float64(bytes), []string{"KiB", "MiB", "GiB", "TiB"}
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	unit := ""
	for _, unit = range units {
		if value /= 1024; value < 1024 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}

func appendError(errs []error, err error) []error {
	if err == nil {
		return errs
	}
	return append(errs, err)
}

// aggregate joins errors into one line, each text once.
func aggregate(errs []error) error { return utilerrors.NewAggregate(errs) }
