package shutdown

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/berthd/berth/internal/atomicfile"
)

// StateFile is the name of the file of the last shutdown beneath the root directory, as a kubelet
// has it.
const StateFile = "graceful_node_shutdown_state"

// state is when the last shutdown began and ended. A shutdown whose end is zero was cut off, or
// goes on.
type state struct {
	Start time.Time `json:"startTime"`
	End   time.Time `json:"endTime"`
}

// load reads the state of the last shutdown; the zero state if there was none.
func load(path string) (state, error) {
	var s state
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return state{}, fmt.Errorf("reading when the last shutdown was from %s: %w", path, err)
	}
	return s, nil
}

// save writes the state to the disk, before the machine is off.
func (s state) save(path string) error {
	text, err := json.Marshal(s)
	if err == nil {
		err = atomicfile.Write(path, text, 0o644, atomicfile.OverPowerLoss)
	}
	if err != nil {
		return fmt.Errorf("recording the shutdown: %w", err)
	}
	return nil
}
